// A limit of how often one peer may make a call: a token bucket for each address.
#ifndef CATCHMENT_SERVER_EDGE_CALL_RATE_H_
#define CATCHMENT_SERVER_EDGE_CALL_RATE_H_

#include <cstddef>
#include <string>
#include <unordered_map>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/token_bucket.h"

namespace catchment {

// Returns the address of a peer as gRPC names it, without its port: "ipv4:10.0.0.1", of an IPv6 address the
// first 64 bits, which are one network, and "unix" for all Unix sockets. Another name is returned as it is.
std::string AddressOfPeer(absl::string_view peer);

// Each address may make `burst` calls at once, and `per_second` over a longer time.
//
// Threads: safe. Units: seconds. Errors: Unavailable, upon which a worker waits and tries again.
class CallRate {
 public:
  struct Options {
    double per_second;
    double burst;
    // Addresses that are remembered. An address whose bucket is full again is forgotten; further ones share a
    // bucket.
    size_t most_addresses = 4096;
  };

  // `clock` outlives the limit.
  CallRate(const Options& options, const Clock* clock) : options_(options), clock_(*clock) {}

  // Counts a call of a peer (grpc::ServerContext::peer) as `times`.
  absl::Status Take(absl::string_view peer, double times = 1);

 private:
  TokenBucket* Find(const std::string& address, double now) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const Clock& clock_;
  Mutex mu_;
  std::unordered_map<std::string, TokenBucket> buckets_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_CALL_RATE_H_
