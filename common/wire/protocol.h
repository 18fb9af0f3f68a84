// What both ends of a Train stream must agree on beside the messages (proto/wire.proto).
#ifndef CATCHMENT_COMMON_WIRE_PROTOCOL_H_
#define CATCHMENT_COMMON_WIRE_PROTOCOL_H_

#include <cstdint>

namespace catchment {

// Hello.protocol_version.
inline constexpr uint32_t kProtocolVersion = 1;
// The call's metadata key that a serialised Hello comes under.
inline constexpr char kHelloKey[] = "catchment-hello-bin";

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_PROTOCOL_H_
