// The tokens of registrations: the proof that a call comes from the member that it names.
//
// The master draws a key for each run and sends it to the servers with its commands (Run.token_key in
// proto/wire.proto). The token of a registration is HMAC-SHA256(key, incarnation), cut to 16 bytes, so that
// every server can check it without a list of members. Members get their token when they register.
#ifndef CATCHMENT_COMMON_WIRE_TOKEN_H_
#define CATCHMENT_COMMON_WIRE_TOKEN_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"

namespace catchment {

// The metadata key of the token in calls to the master.
inline constexpr char kTokenMetadata[] = "catchment-token-bin";

// Returns 32 random bytes from the operating system.
std::string NewTokenKey();

// Returns the token of the registration with this incarnation.
std::string RegistrationToken(absl::string_view key, uint64_t incarnation);

// In the place of an incarnation, for the token with which servers identify themselves to each other.
inline constexpr uint64_t kServersIncarnation = 0;

// Compares in a time that does not depend on the bytes of `token`.
bool IsTokenOf(absl::string_view key, uint64_t incarnation, absl::string_view token);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_WIRE_TOKEN_H_
