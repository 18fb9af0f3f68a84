#include "common/rpc.h"

#include <grpcpp/security/credentials.h>
#include <malloc.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "common/command_line.h"

namespace catchment {
namespace {

// The number of bytes that a peer may send before they are read. A worker has requested what it receives, but
// a server must not buffer much of a message that never ends.
constexpr int kWorkerLookaheadBytes = 64 << 20;
constexpr int kServerLookaheadBytes = 8 << 20;
constexpr int kServerReadBytes = 128 << 10;
constexpr int kMaxFrameBytes = 16 << 20;
constexpr int kKeepaliveMs = 20'000;

struct TlsFlag {
  const char* name;
  std::string TlsFiles::*file;
  const char* help;
};

constexpr TlsFlag kTlsFlags[] = {
    {"tls_ca", &TlsFiles::ca,
     "PEM file of the authority that has issued the certificates of both sides (mutual TLS)."},
    {"tls_cert", &TlsFiles::cert, "PEM file of this side's certificate."},
    {"tls_key", &TlsFiles::key, "PEM file of the certificate's private key."},
};

absl::StatusOr<std::string> ReadPem(const std::string& flag, const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  if (!file || text.str().find("-----BEGIN") == std::string::npos) {
    return absl::InvalidArgumentError(absl::StrCat("--", flag, "=", path, " is not a readable PEM file"));
  }
  return text.str();
}

// Returns the texts of the files; empty ones for an unencrypted connection.
absl::StatusOr<TlsFiles> ReadAll(const TlsFiles& tls) {
  if (absl::Status status = CheckComplete(tls); !status.ok()) return status;
  TlsFiles pem;
  if (tls.ca.empty()) return pem;
  for (const TlsFlag& flag : kTlsFlags) {
    absl::StatusOr<std::string> text = ReadPem(flag.name, tls.*flag.file);
    if (!text.ok()) return text.status();
    pem.*flag.file = *std::move(text);
  }
  return pem;
}

}  // namespace

void AddTlsFlags(TlsFiles* tls, FlagSet* flags) {
  for (const TlsFlag& flag : kTlsFlags) flags->AddString(flag.name, "FILE", &(tls->*flag.file), flag.help);
}

std::vector<std::string> TlsArguments(const TlsFiles& tls) {
  std::vector<std::string> arguments;
  for (const TlsFlag& flag : kTlsFlags) {
    if (!(tls.*flag.file).empty()) arguments.push_back(absl::StrCat("--", flag.name, "=", tls.*flag.file));
  }
  return arguments;
}

absl::Status CheckComplete(const TlsFiles& tls) {
  const size_t given = TlsArguments(tls).size();
  if (given == 0 || given == std::size(kTlsFlags)) return absl::OkStatus();
  return absl::InvalidArgumentError("mutual TLS requires all of --tls_ca, --tls_cert and --tls_key");
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& tls) {
  const absl::StatusOr<TlsFiles> pem = ReadAll(tls);
  if (!pem.ok()) return pem.status();
  if (pem->ca.empty()) return grpc::InsecureChannelCredentials();
  return grpc::SslCredentials({pem->ca, pem->key, pem->cert});
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& tls) {
  const absl::StatusOr<TlsFiles> pem = ReadAll(tls);
  if (!pem.ok()) return pem.status();
  if (pem->ca.empty()) return grpc::InsecureServerCredentials();
  grpc::SslServerCredentialsOptions options(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.pem_root_certs = pem->ca;
  options.pem_key_cert_pairs.push_back({pem->key, pem->cert});
  return grpc::SslServerCredentials(options);
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
  builder->AddChannelArgument(GRPC_ARG_HTTP2_MAX_PING_STRIKES, 0);
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
  const std::string message = status.error_message();
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      context.empty() ? message : absl::StrCat(context, ": ", message));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

std::unique_ptr<grpc::ClientContext> DeadlineContext(double seconds) {
  auto context = std::make_unique<grpc::ClientContext>();
  context->set_deadline(std::chrono::system_clock::now() +
                        std::chrono::microseconds(static_cast<int64_t>(seconds * 1e6)));
  return context;
}

void TuneProcess() {
  // Otherwise gRPC 1.51 keeps buffers for every connection, which grow with its traffic up to a megabyte.
  setenv("GRPC_EXPERIMENTS", "-tcp_read_chunks", /*overwrite=*/0);
  // gRPC uses Abseil's locks, and Debian's build of Abseil checks for deadlocks at each of them, under one
  // global lock.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  mallopt(M_MMAP_THRESHOLD, 1 << 30);
  mallopt(M_TRIM_THRESHOLD, 1 << 30);
}

}  // namespace catchment
