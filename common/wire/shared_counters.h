// The counters of a worker that uses shared memory with a server (Block.SHARE in proto/wire.proto), in the
// worker's memory.
#ifndef CATCHMENT_COMMON_WIRE_SHARED_COUNTERS_H_
#define CATCHMENT_COMMON_WIRE_SHARED_COUNTERS_H_

#include <cstdint>

namespace catchment {

// A server's counter (Block.shared_generation) of a payload is this many bytes before it.
inline constexpr uint64_t kGenerationBefore = 64;

struct SharedCounters {
  // Advances when the worker no longer waits for the answers to what it has sent on its stream, before it
  // changes that memory.
  uint64_t generation = 0;
  // The number of answers of the stream, with payloads in shared memory, that the worker has read.
  uint64_t answers_read = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_SHARED_COUNTERS_H_
