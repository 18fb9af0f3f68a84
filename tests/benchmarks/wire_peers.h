// The two ends that the wire benchmark drives, each in a separate process: a server that holds N float32
// weights and applies w -= lr * g to every gradient that comes, and a worker that sends a gradient and gets
// the weights after it.
#ifndef CATCHMENT_TESTS_BENCHMARKS_WIRE_PEERS_H_
#define CATCHMENT_TESTS_BENCHMARKS_WIRE_PEERS_H_

#include <cstdint>
#include <memory>
#include <memory_resource>
#include <string>

#include "absl/types/span.h"
#include "common/net/rpc.h"
#include "proto/job.pb.h"

namespace catchment {

struct PeerOptions {
  std::string transport;  // tcp, unix, shm
  int64_t values = 0;     // float32 weights
  int workers = 1;
  int worker = 0;                       // this one's index
  std::string address = "127.0.0.1:0";  // tcp: HOST:PORT, port 0 for a free one; unix: a path
  std::string certificates = "";        // the directory of deploy/make_certs.sh; empty: clear text
  // Plain: the server answers with the gradient, and applies nothing.
  bool echo = false;
  // Catchment's.
  bool standby = false;
  v1::Optimizer::Kind optimizer = v1::Optimizer::SGD;
  std::string checkpoints = "";  // directory; empty: it keeps none
};

// Returns the files of a role; none for clear text.
inline TlsFiles CertificateOf(const PeerOptions& options, const std::string& role) {
  if (options.certificates.empty()) return {};
  const std::string path = options.certificates + "/" + role;
  return {options.certificates + "/ca.crt", path + ".crt", path + ".key"};
}

inline constexpr float kLearningRate = 1e-3f;

// Serves from construction to destruction, on its own threads.
class WireServer {
 public:
  virtual ~WireServer() = default;
  virtual std::string address() const = 0;
  // Catchment's: saves the checkpoint with this number, and waits until it is saved.
  virtual void SaveCheckpoint(uint64_t number) {}
};

class WireWorker {
 public:
  virtual ~WireWorker() = default;
  // Returns the allocator for the gradient.
  virtual std::pmr::memory_resource* memory() { return std::pmr::get_default_resource(); }
  // Ends the process on any error: a benchmark has no use for half a result.
  virtual void RoundTrip(absl::Span<const float> gradient, absl::Span<float> weights) = 0;
};

// w -= lr * g ; where `copy` is not null it gets the new w.
void ApplySgd(const float* gradient, int64_t n, float* weights, float* copy);

std::unique_ptr<WireServer> MakePlainServer(const PeerOptions& options);
std::unique_ptr<WireWorker> MakePlainWorker(const PeerOptions& options);
std::unique_ptr<WireServer> MakeProtobufServer(const PeerOptions& options);
// One message there and one back.
std::unique_ptr<WireWorker> MakeUnaryWorker(const PeerOptions& options);
// Blocks in one stream; another thread writes while this one reads.
std::unique_ptr<WireWorker> MakeStreamWorker(const PeerOptions& options);
std::unique_ptr<WireServer> MakeCatchmentServer(const PeerOptions& options);
std::unique_ptr<WireWorker> MakeCatchmentWorker(const PeerOptions& options);

// Returns the address for gRPC: "unix:PATH" or HOST:PORT.
std::string GrpcAddress(const PeerOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_WIRE_PEERS_H_
