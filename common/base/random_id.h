// Random identifiers.
#ifndef CATCHMENT_COMMON_BASE_RANDOM_ID_H_
#define CATCHMENT_COMMON_BASE_RANDOM_ID_H_

#include <cstdint>
#include <string>

namespace catchment {

// Returns 64 random bits from the operating system, never 0.
uint64_t RandomId();

// Returns the 16 hexadecimal digits with which messages show an id.
std::string FormatId(uint64_t id);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_RANDOM_ID_H_
