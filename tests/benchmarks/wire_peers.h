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

namespace catchment {

struct PeerOptions {
  std::string variant;    // plain, protobuf_unary, protobuf_stream, catchment
  std::string transport;  // tcp, unix, shm
  bool tls = false;
  int64_t values = 0;  // float32 weights
  int workers = 1;
  int worker = 0;            // this one's index
  std::string address;       // tcp: HOST:PORT, port 0 for a free one; unix: a path
  std::string certificates;  // the directory of deploy/make_certs.sh; empty: clear text
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
std::unique_ptr<WireWorker> MakeProtobufWorker(const PeerOptions& options);
std::unique_ptr<WireServer> MakeCatchmentServer(const PeerOptions& options);
std::unique_ptr<WireWorker> MakeCatchmentWorker(const PeerOptions& options);

// Returns the address for gRPC: "unix:PATH" or HOST:PORT.
std::string GrpcAddress(const PeerOptions& options);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_WIRE_PEERS_H_
