// Measures plain sockets on this machine: the upper bound of what processes can exchange over
// loopback.
#ifndef CATCHMENT_TESTS_BENCHMARKS_LOOPBACK_H_
#define CATCHMENT_TESTS_BENCHMARKS_LOOPBACK_H_

#include <cstdint>

#include "absl/status/statusor.h"

namespace catchment {

// Bytes a second, both directions together, over `connections` TCP connections at once. On each a client
// writes `bytes` and reads as many, blocking, again and again for about `seconds`; the other end reads, then
// writes.
absl::StatusOr<double> LoopbackBytesPerSecond(int64_t bytes, int connections, double seconds);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_LOOPBACK_H_
