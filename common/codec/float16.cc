#include <immintrin.h>

#include <algorithm>
#include <cstring>

#include "common/codec/formats.h"

namespace catchment {
namespace {

constexpr int kMinScaleExponent = -126;
constexpr int kMaxScaleExponent = 113;  // for a block whose largest magnitude is 2^127 or more
constexpr size_t kLanes = 8;

// Uses intrinsics, because g++ 12 does not vectorise these conversions.
template <int kRounding>
void Narrow(const float* in, size_t n, float factor, char* out) {
  const __m256 factors = _mm256_set1_ps(factor);
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m256 numbers = _mm256_mul_ps(_mm256_loadu_ps(in + i), factors);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out + 2 * i), _mm256_cvtps_ph(numbers, kRounding));
  }
  for (; i < n; ++i) {
    const uint16_t number = _cvtss_sh(in[i] * factor, kRounding);
    std::memcpy(out + 2 * i, &number, sizeof(number));
  }
}

bool Widen(const char* bytes, size_t n, float scale, float* out) {
  const __m256 scales = _mm256_set1_ps(scale);
  const __m256i exponent_bits = _mm256_set1_epi32(kInfinityBits);
  const __m256i largest_usable = _mm256_set1_epi32(kTooLargeBits - 1);
  __m256i non_finite = _mm256_setzero_si256();
  size_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const __m128i numbers = _mm_loadu_si128(reinterpret_cast<const __m128i*>(bytes + 2 * i));
    const __m256 values = _mm256_mul_ps(_mm256_cvtph_ps(numbers), scales);
    const __m256i exponents = _mm256_and_si256(_mm256_castps_si256(values), exponent_bits);
    non_finite = _mm256_or_si256(non_finite, _mm256_cmpgt_epi32(exponents, largest_usable));
    _mm256_storeu_ps(out + i, values);
  }
  bool finite = _mm256_testz_si256(non_finite, non_finite);
  for (; i < n; ++i) {
    uint16_t number;
    std::memcpy(&number, bytes + 2 * i, sizeof(number));
    out[i] = _cvtsh_ss(number) * scale;
    finite &= IsUsable(out[i]);
  }
  return finite;
}

}  // namespace

float ScaleForFloat16(absl::Span<const float> values) {
  uint32_t largest = 0;
  for (const float value : values) largest = std::max(largest, MagnitudeBits(value));
  if (largest == 0) return 1;
  const int exponent = static_cast<int>(largest >> 23) - 127;
  return std::bit_cast<float>(
      static_cast<uint32_t>(std::clamp(exponent - 14, kMinScaleExponent, kMaxScaleExponent) + 127) << 23);
}

void EncodeFloat16(absl::Span<const float> values, float scale, char* out) {
  const auto narrow = scale == 0x1p113f ? Narrow<_MM_FROUND_TO_ZERO> : Narrow<_MM_FROUND_TO_NEAREST_INT>;
  narrow(values.data(), values.size(), 1 / scale, out);
}

bool DecodeFloat16(const PayloadView& payload, float scale, float* out) {
  bool finite = true;
  ForEachRun<sizeof(uint16_t)>(payload, [&](const char* bytes, size_t count) {
    finite &= Widen(bytes, count, scale, out);
    out += count;
  });
  return finite;
}

}  // namespace catchment
