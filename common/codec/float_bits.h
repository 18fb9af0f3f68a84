// The bits of a float32, as far as codecs look at them.
#ifndef CATCHMENT_COMMON_CODEC_FLOAT_BITS_H_
#define CATCHMENT_COMMON_CODEC_FLOAT_BITS_H_

#include <algorithm>
#include <bit>
#include <cstdint>

namespace catchment {

inline constexpr uint32_t kInfinityBits = 0x7f800000;

// Orders as |x| does, with infinity above all numbers and NaN above infinity.
inline uint32_t MagnitudeBits(float x) { return std::bit_cast<uint32_t>(x) & 0x7fffffff; }

inline bool IsFinite(float x) { return MagnitudeBits(x) < kInfinityBits; }

inline bool AreFinite(const float* values, int64_t size) {
  uint32_t largest = 0;
  for (int64_t i = 0; i < size; ++i) largest = std::max(largest, MagnitudeBits(values[i]));
  return largest < kInfinityBits;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CODEC_FLOAT_BITS_H_
