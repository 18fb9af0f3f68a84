// The parts of the protocol other than the messages (proto/wire.proto, proto/master.proto).
#ifndef CATCHMENT_COMMON_WIRE_PROTOCOL_H_
#define CATCHMENT_COMMON_WIRE_PROTOCOL_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace catchment {

// The version in Hello and in every registration. Version 2 added ids of runs and of server processes,
// version 3 Block.steps, version 4 Aborted for a worker that has to register again, version 5 servers that
// begin again from a checkpoint, version 6 tokens of registrations, version 7 lanes for fragments.
inline constexpr uint32_t kProtocolVersion = 7;
// The metadata key of the serialized Hello.
inline constexpr char kHelloKey[] = "catchment-hello-bin";
// The key of the serialized StandbyHello (proto/standby.proto).
inline constexpr char kStandbyHelloKey[] = "catchment-standby-bin";

// Returns FailedPrecondition, naming both sides, if the protocol version of the peer differs from that of
// `me`, this process. `build` is that of the peer, empty if it is not known.
absl::Status CheckProtocolVersion(absl::string_view peer, uint32_t version, absl::string_view build,
                                  absl::string_view me);

// The counters of a worker that uses shared memory with a server (Block.SHARE in proto/wire.proto), in the
// worker's memory.

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

#endif  // CATCHMENT_COMMON_WIRE_PROTOCOL_H_
