// Identifiers that no other process gives.
#ifndef CATCHMENT_COMMON_RANDOM_ID_H_
#define CATCHMENT_COMMON_RANDOM_ID_H_

#include <cstdint>
#include <string>

namespace catchment {

// Returns 64 random bits of the operating system's, never 0.
uint64_t RandomId();

// Returns 16 hexadecimal digits, as messages show an id.
std::string FormatId(uint64_t id);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_RANDOM_ID_H_
