// The common parts of all users of gRPC: credentials, channel and server settings, status conversion.
#ifndef CATCHMENT_COMMON_RPC_H_
#define CATCHMENT_COMMON_RPC_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

class FlagSet;

// PEM files for mutual TLS; all three or none. Both sides present a certificate of the same authority and
// verify that of the other.
struct TlsFiles {
  std::string ca;
  std::string cert;
  std::string key;
};

// Declares --tls_ca, --tls_cert and --tls_key.
void AddTlsFlags(TlsFiles* tls, FlagSet* flags);
// Returns these flags as another process is given them; none for files that are not given.
std::vector<std::string> TlsArguments(const TlsFiles& tls);
// Returns InvalidArgument if only some files are given.
absl::Status CheckComplete(const TlsFiles& tls);

// Return credentials. InvalidArgument if only some files are given; errors of reading a file name it.
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
// message.
absl::Status FromGrpc(const grpc::Status& status, const std::string& context = "");
grpc::Status ToGrpc(const absl::Status& status);

// Returns the context of a call that ends after `seconds`.
std::unique_ptr<grpc::ClientContext> DeadlineContext(double seconds);

// Configures memory allocation and gRPC. Call it once, at the beginning of main(). Large buffers are
// allocated from the heap instead of by mmap, so that their pages are not returned to the kernel after every
// message (measured: half of the time of a large round trip), and gRPC keeps little memory for an idle
// connection (measured: 0.1 instead of 1.1 MiB).
void TuneProcess();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_RPC_H_
