// What every user of gRPC here shares: credentials, channel and server settings, status conversion.
#ifndef CATCHMENT_COMMON_RPC_H_
#define CATCHMENT_COMMON_RPC_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace catchment {

// PEM files for mutual TLS; all three or none. Both sides show a certificate of the same authority, and both
// check it.
struct TlsFiles {
  std::string ca;
  std::string cert;
  std::string key;
};

// InvalidArgument when only some are given; the errors of reading them name the file.
absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> ClientCredentials(const TlsFiles& tls);
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentials(const TlsFiles& tls);

// For channels that carry weights: large frames, no limit on a message's size, a connection of its own, quick
// reconnection, keepalive.
grpc::ChannelArguments TrainingChannelArguments();
void SetTrainingOptions(grpc::ServerBuilder* builder);

std::shared_ptr<grpc::Channel> Connect(const std::string& address,
                                       const std::shared_ptr<grpc::ChannelCredentials>& credentials);
// Returns a channel for calls that carry no weights. It does not measure the bandwidth, which costs a ping
// for nearly every message where messages are rare.
std::shared_ptr<grpc::Channel> ConnectForControl(
    const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials);

// The two have the same codes. `context` goes before the message: "server 1 at host:port".
absl::Status FromGrpc(const grpc::Status& status, const std::string& context = "");
grpc::Status ToGrpc(const absl::Status& status);

// A context whose call ends after `seconds`.
std::unique_ptr<grpc::ClientContext> DeadlineContext(double seconds);

// Call once, first thing in main(). Large buffers come from the heap instead of from mmap, so that their
// pages are not taken from and given back to the kernel for every message (measured: half of a large round
// trip); and gRPC keeps little memory for a connection over which nothing comes (measured: 0.1 instead of 1.1
// MiB).
void TuneProcess();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_RPC_H_
