// Integer divisions that round up.
#ifndef CATCHMENT_COMMON_BASE_ROUNDING_H_
#define CATCHMENT_COMMON_BASE_ROUNDING_H_

#include <cstdint>

namespace catchment {

// Returns value / unit, rounded up. `unit` is above 0.
constexpr uint64_t CeilDivide(uint64_t value, uint64_t unit) { return (value + unit - 1) / unit; }

// Returns the lowest multiple of `unit` that is at least `value`.
constexpr uint64_t RoundUp(uint64_t value, uint64_t unit) { return CeilDivide(value, unit) * unit; }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_ROUNDING_H_
