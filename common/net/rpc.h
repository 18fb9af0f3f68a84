// The common parts of all users of gRPC: credentials, channel and server settings, status conversion.
#ifndef CATCHMENT_COMMON_NET_RPC_H_
#define CATCHMENT_COMMON_NET_RPC_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// PEM files for mutual TLS; all three or none. Both sides present a certificate of the same authority and
// verify that of the other.
struct TlsFiles {
  std::string ca;
  std::string cert;
  std::string key;
  std::string certs = "";  // a directory as deploy/make_certs.sh makes it, for FillTlsFiles
};

// After the flags are parsed, sets the files that are not given to those of the directory: ca.crt, ROLE.crt
// and ROLE.key. `role` is the process's own: server, worker, evaluator or operator.
void FillTlsFiles(const std::string& role, TlsFiles* tls);
// Returns InvalidArgument if only some files are given.
absl::Status CheckComplete(const TlsFiles& tls);

// Logged by daemons with --insecure.
inline constexpr char kInsecureWarning[] =
    "INSECURE: connections over the network are neither encrypted nor authenticated (--insecure); everyone "
    "who reaches a server's port can read, change and end the job";
// Returns true for unix:PATH, and for HOST:PORT if every address of HOST belongs to the loopback interface.
bool IsLocal(const std::string& address);
// Returns FailedPrecondition if connections between this process and `address` are neither encrypted nor
// local, unless `insecure` is set.
absl::Status CheckSecure(const std::string& address, const TlsFiles& tls, bool insecure);

// Return credentials. A client accepts only a server whose certificate is valid for the host that it connects
// to, and names the role server. New connections use the files as they are then: replaced files are noticed
// within two seconds.
// Errors: InvalidArgument if only some files are given, a file cannot be read (which it names), or the key is
// not that of the certificate.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& tls);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& tls);

// Returns the arguments of channels that transfer weights: large frames, no limit on message sizes, a
// separate connection, fast reconnection, keepalive.
grpc::ChannelArguments TrainingChannelArguments();
void SetTrainingOptions(grpc::ServerBuilder* builder);

std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials);
// Returns a channel for calls that transfer no weights. It does not measure the bandwidth, which would cost a
// ping for nearly every message if messages are rare.
std::shared_ptr<grpc::Channel> ConnectForControl(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// Convert statuses; both types have the same codes. `context`, such as "server 1 at host:port", prefixes the
// message. The status of a call whose stream the peer has reset without an answer becomes Unavailable.
absl::Status FromGrpc(const grpc::Status& status, const std::string& context = "");
grpc::Status ToGrpc(const absl::Status& status);

// Returns the time in `seconds`, on the monotonic clock, for the waits and deadlines of gRPC.
gpr_timespec TimeIn(double seconds);

// Returns the context of a call that ends after `seconds`.
std::unique_ptr<grpc::ClientContext> DeadlineContext(double seconds);

// Configures memory allocation and gRPC. Call it once, at the beginning of main(). Large buffers are
// allocated from the heap instead of by mmap, so that their pages are not returned to the kernel after every
// message (measured: half of the time of a large round trip), and gRPC keeps little memory for an idle
// connection (measured: 0.1 instead of 1.1 MiB).
void TuneProcess();

// Keeps gRPC running until the process ends. Shutting it down takes up to 10 s if a write once had to wait
// for room in its socket: the thread that then waits for the connection (the "backup poller") is not woken.
// Call it when signals are blocked, because it starts threads.
void KeepGrpcRunning();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_RPC_H_
