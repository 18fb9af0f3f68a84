// The precision of the factors of matrix products, which are rounded to the nearest value, ties to even,
// except for TF32. Sums are float32.
//
//   TF32       11 significant bits, float32's range; stored as float32, of which tensor cores read the
//              highest 19 bits: the others are dropped, unless cuBLAS uses a kernel that rounds first
//   bfloat16    8 significant bits, float32's range; 16 bits
//   float16    11 significant bits; 65520 and more become infinity; below 2^-14 bits are lost one by one, the
//              smallest is 2^-24; 16 bits
//
// A NaN stays a NaN. Source: IEEE 754-2019, binary16; Kalamkar et al. 2019, arXiv:1905.12322.
#ifndef CATCHMENT_KERNELS_CUDA_PRECISION_H_
#define CATCHMENT_KERNELS_CUDA_PRECISION_H_

#include <bit>
#include <cmath>
#include <cstdint>

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define CATCHMENT_ON_DEVICE __device__
#else
#define CATCHMENT_ON_DEVICE
#endif

namespace catchment::cuda {

// The numbers are those of plugin_api.h.
enum class Precision { kFloat32 = 0, kTf32 = 1, kBfloat16 = 2, kFloat16 = 3 };

constexpr bool Is16Bit(Precision precision) {
  return precision == Precision::kBfloat16 || precision == Precision::kFloat16;
}
inline int BytesOf(Precision precision) { return Is16Bit(precision) ? 2 : 4; }
// Returns a name for messages.
inline const char* NameOf(Precision precision) {
  constexpr const char* kNames[] = {"float32", "TF32", "bfloat16", "float16"};
  return kNames[static_cast<int>(precision)];
}

#ifdef __CUDACC__

CATCHMENT_ON_DEVICE inline uint16_t RoundToBfloat16(float value) {
  return __bfloat16_as_ushort(__float2bfloat16_rn(value));
}
CATCHMENT_ON_DEVICE inline uint16_t RoundToFloat16(float value) {
  return __half_as_ushort(__float2half_rn(value));
}
CATCHMENT_ON_DEVICE inline float FromBfloat16(uint16_t bits) {
  return __uint_as_float(static_cast<uint32_t>(bits) << 16);
}
CATCHMENT_ON_DEVICE inline float FromFloat16(uint16_t bits) { return __half2float(__ushort_as_half(bits)); }

#else

// Rounds the bits above the lowest `dropped` ones.
inline uint32_t RoundBits(uint32_t bits, int dropped) {
  const uint32_t to_even = bits >> dropped & 1;
  return (bits + (1u << (dropped - 1)) - 1 + to_even) >> dropped;
}

inline uint16_t RoundToBfloat16(float value) {
  if (std::isnan(value)) return 0x7fc0;
  return static_cast<uint16_t>(RoundBits(std::bit_cast<uint32_t>(value), 16));
}

inline uint16_t RoundToFloat16(float value) {
  const auto sign = static_cast<uint16_t>(std::signbit(value) ? 0x8000 : 0);
  const float magnitude = std::fabs(value);
  if (std::isnan(value)) return sign | 0x7e00;
  if (magnitude >= 65520) return sign | 0x7c00;
  // The last bit of a float between 1/2 and 1 is 2^-24.
  if (magnitude < 0x1p-14f)
    return sign | static_cast<uint16_t>(std::bit_cast<uint32_t>(magnitude + 0.5f) - 0x3f000000u);
  constexpr uint32_t kBiases = (127 - 15) << 23;
  return sign | static_cast<uint16_t>(RoundBits(std::bit_cast<uint32_t>(magnitude) - kBiases, 13));
}

inline float RoundToTf32(float value) {
  if (!std::isfinite(value)) return value;
  return std::bit_cast<float>(RoundBits(std::bit_cast<uint32_t>(value), 13) << 13);
}

inline float FromBfloat16(uint16_t bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }

inline float FromFloat16(uint16_t bits) {
  const int exponent = bits >> 10 & 31, fraction = bits & 1023;
  float magnitude = std::ldexp(static_cast<float>(exponent == 0 ? fraction : 1024 + fraction),
                               (exponent == 0 ? 1 : exponent) - 25);
  if (exponent == 31) magnitude = fraction == 0 ? INFINITY : NAN;
  return (bits & 0x8000) != 0 ? -magnitude : magnitude;
}

#endif

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_PRECISION_H_
