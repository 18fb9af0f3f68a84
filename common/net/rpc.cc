#include "common/net/rpc.h"

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/tls_certificate_provider.h>
#include <grpcpp/security/tls_certificate_verifier.h>
#include <grpcpp/security/tls_credentials_options.h>
#include <malloc.h>

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "common/base/file_access.h"
#include "common/base/not_ready.h"
#include "common/base/status_macros.h"
#include "common/net/address.h"
#include "common/net/certificate.h"
#include "common/net/peer_status.h"

namespace catchment {
namespace {

// The number of bytes that a peer may send before they are read. A worker has requested everything that it
// receives, but a server must not buffer much of a message that never ends.
constexpr int kWorkerLookaheadBytes = 64 << 20;
constexpr int kServerLookaheadBytes = 8 << 20;
constexpr int kServerReadBytes = 128 << 10;
constexpr int kMaxFrameBytes = 16 << 20;
constexpr int kKeepaliveMs = 20'000;
constexpr int kPingStrikes = 100;

// The files of mutual TLS, by the flags that name them in messages.
constexpr struct {
  const char* name;
  std::string TlsFiles::*file;
} kTlsFiles[] = {{"tls_ca", &TlsFiles::ca}, {"tls_cert", &TlsFiles::cert}, {"tls_key", &TlsFiles::key}};

// The interval at which certificates and keys are read again.
constexpr int kReloadSeconds = 1;

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok() || !absl::StrContains(*text, "-----BEGIN")) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", path, " is not a readable PEM file"));
  }
  return text;
}

// Checks that the files can be read, and that the key is that of the certificate.
absl::Status CheckFiles(const TlsFiles& tls) {
  RETURN_IF_ERROR(CheckComplete(tls));
  if (tls.ca.empty()) return absl::OkStatus();
  TlsFiles pem;
  for (const auto& flag : kTlsFiles) {
    ASSIGN_OR_RETURN(pem.*flag.file, ReadPem(flag.name, tls.*flag.file));
  }
  if (IsKeyOf(pem.key, pem.cert)) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("--tls_key=", tls.key, " and --tls_cert=", tls.cert,
                                                 " are not a matching key and certificate"));
}

void WatchFiles(const TlsFiles& tls, grpc::experimental::TlsCredentialsOptions* options) {
  options->set_certificate_provider(std::make_shared<grpc::experimental::FileWatcherCertificateProvider>(
      tls.key, tls.cert, tls.ca, kReloadSeconds));
  options->watch_root_certs();
  options->watch_identity_key_cert_pairs();
}

// Accepts a server's certificate that is valid for the host and names the role of a server, so that nobody
// with the key of another role can pass for a server.
class ServerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  bool Verify(grpc::experimental::TlsCustomVerificationCheckRequest* request,
              std::function<void(grpc::Status)> callback, grpc::Status* status) override {
    if (!host_name_.Verify(request, std::move(callback), status)) {
      *status = grpc::Status(grpc::INTERNAL, "the host name was not checked at once");
    } else if (status->ok() && !NamesServer(*request)) {
      *status = grpc::Status(
          grpc::UNAUTHENTICATED,
          absl::StrCat(
              "the peer's certificate does not name the role of a server (subject alternative name URI:",
              kRoleUri, "server; deploy/make_certs.sh makes such certificates)"));
    }
    return true;
  }
  void Cancel(grpc::experimental::TlsCustomVerificationCheckRequest* request) override {
    host_name_.Cancel(request);
  }

 private:
  static bool NamesServer(const grpc::experimental::TlsCustomVerificationCheckRequest& request) {
    const std::string wanted = absl::StrCat(kRoleUri, "server");
    const std::vector<grpc::string_ref> names = request.uri_names();
    return std::any_of(names.begin(), names.end(),
                       [&wanted](const grpc::string_ref& name) { return name == wanted; });
  }

  grpc::experimental::HostNameCertificateVerifier host_name_;
};

// Returns true if the peer has reset the stream of the call (RST_STREAM) without an answer. gRPC makes a
// status of the error code, such as RESOURCE_EXHAUSTED when the peer was short of memory, and only its
// message differs from an answer.
bool WasReset(const grpc::Status& status) {
  return absl::StartsWith(status.error_message(), "Received RST_STREAM");
}

// OpenSSL's error does not say whether a certificate is of another authority, or not valid at this time.
std::string CertificateHint(const std::string& message) {
  if (!absl::StrContains(message, "certificate verify failed")) return "";
  return absl::StrCat(
      "; the peer's certificate is not from the authority of --tls_ca, "
      "or the clocks of the two machines differ: here it is ",
      absl::FormatTime("%Y-%m-%d %H:%M:%S UTC", absl::Now(), absl::UTCTimeZone()));
}

// gRPC's own resolver reads /etc/hosts and asks DNS. The C library's also follows nsswitch.conf, for example
// to mDNS, LDAP or the machine's own name. gRPC reads the variable when it is initialized, before the first
// channel or server.
void UseSystemResolver() { setenv("GRPC_DNS_RESOLVER", "native", /*overwrite=*/0); }

}  // namespace

bool IsLocal(const std::string& address) {
  return absl::StartsWith(address, "unix:") || IsLocalHost(HostOf(address));
}

absl::Status CheckSecure(const std::string& address, const TlsFiles& tls, bool insecure) {
  if (insecure && !tls.ca.empty()) {
    return absl::InvalidArgumentError(
        "--insecure and TLS (--certs, --tls_ca) are mutually exclusive: omit one of them");
  }
  if (insecure || !tls.ca.empty() || IsLocal(address)) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      address,
      " is not on this machine's loopback interface (localhost, or an address such as 127.0.0.1), and "
      "without TLS everyone who reaches the port can read, "
      "change and end the job: give all processes --certs=DIR (deploy/make_certs.sh makes certificates), or "
      "--insecure on a network that no one else can reach"));
}

void FillTlsFiles(const std::string& role, TlsFiles* tls) {
  if (tls->certs.empty()) return;
  const auto fill = [tls](const std::string& name, std::string* file) {
    if (file->empty()) *file = absl::StrCat(tls->certs, "/", name);
  };
  fill("ca.crt", &tls->ca);
  fill(role + ".crt", &tls->cert);
  fill(role + ".key", &tls->key);
}

absl::Status CheckComplete(const TlsFiles& tls) {
  const auto missing = std::count_if(std::begin(kTlsFiles), std::end(kTlsFiles),
                                     [&tls](const auto& flag) { return (tls.*flag.file).empty(); });
  if (missing == 0 || missing == std::ssize(kTlsFiles)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "mutual TLS requires all of --tls_ca, --tls_cert and --tls_key, or --certs=DIR");
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& tls) {
  UseSystemResolver();  // for commands, which do not call TuneProcess
  RETURN_IF_ERROR(CheckFiles(tls));
  if (tls.ca.empty()) return grpc::InsecureChannelCredentials();
  grpc::experimental::TlsChannelCredentialsOptions options;
  WatchFiles(tls, &options);
  options.set_certificate_verifier(grpc::experimental::ExternalCertificateVerifier::Create<ServerVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& tls) {
  RETURN_IF_ERROR(CheckFiles(tls));
  if (tls.ca.empty()) return grpc::InsecureServerCredentials();
  grpc::experimental::TlsServerCredentialsOptions options(nullptr);
  WatchFiles(tls, &options);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  return grpc::experimental::TlsServerCredentials(options);
}

grpc::ChannelArguments TrainingChannelArguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(-1);
  arguments.SetMaxSendMessageSize(-1);
  arguments.SetInt(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kWorkerLookaheadBytes);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 200);
  // This also limits the time of one attempt, including handshakes.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 5000);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return arguments;
}

void SetTrainingOptions(grpc::ServerBuilder* builder) {
  builder->SetMaxReceiveMessageSize(-1);
  builder->SetMaxSendMessageSize(-1);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_STREAM_LOOKAHEAD_BYTES, kServerLookaheadBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_FRAME_SIZE, kMaxFrameBytes);
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveMs / 2);
  // Pings that measure a connection's bandwidth are not far apart, and do not count while the server sends.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, kPingStrikes);
  // gRPC keeps a buffer of this size for every connection, even an idle one.
  builder->AddChannelArgument(GRPC_ARG_TCP_MAX_READ_CHUNK_SIZE, kServerReadBytes);
  // Without it two servers could listen on one port, and the second start would not fail.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  return grpc::CreateCustomChannel(address, credentials, TrainingChannelArguments());
}

std::shared_ptr<grpc::Channel> ConnectForControl(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials) {
  grpc::ChannelArguments arguments = TrainingChannelArguments();
  arguments.SetInt(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  return grpc::CreateCustomChannel(address, credentials, arguments);
}

absl::Status FromGrpc(const grpc::Status& status, const std::string& context) {
  if (status.ok()) return absl::OkStatus();
  const std::string message = status.error_message() + CertificateHint(status.error_message());
  if (status.error_details() == kNotReady)
    return OfPeer(NotReady(context.empty() ? message : absl::StrCat(context, ": ", message)));
  return OfPeer(absl::Status(
      WasReset(status) ? absl::StatusCode::kUnavailable : static_cast<absl::StatusCode>(status.error_code()),
      context.empty() ? message : absl::StrCat(context, ": ", message)));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()),
                      IsNotReady(status) ? kNotReady : "");
}

gpr_timespec TimeIn(double seconds) {
  const gpr_timespec duration = gpr_time_from_micros(static_cast<int64_t>(seconds * 1e6), GPR_TIMESPAN);
  return gpr_time_add(gpr_now(GPR_CLOCK_MONOTONIC), duration);
}

std::unique_ptr<grpc::ClientContext> DeadlineContext(double seconds) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(TimeIn(seconds));
  return context;
}

void TuneProcess() {
  // Otherwise gRPC 1.51 keeps buffers for every connection, which grow with its traffic up to a megabyte.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);
  UseSystemResolver();
  // gRPC uses Abseil's locks, and Debian's build of Abseil checks for deadlocks at each of them, under one
  // global lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

void KeepGrpcRunning() { grpc_init(); }

}  // namespace catchment
