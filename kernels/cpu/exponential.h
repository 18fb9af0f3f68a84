// exp, sigmoid and tanh without branches and calls, so that compilers vectorise loops over them.
//
// exp(x) = 2^k exp(r) with k the integer next to x / log 2 and |r| <= log(2) / 2, where exp(r) is its Taylor
// polynomial of degree 7. Errors: below 3e-7 of exp; sigmoid and tanh below 3e-7 absolutely.
#ifndef CATCHMENT_KERNELS_CPU_EXPONENTIAL_H_
#define CATCHMENT_KERNELS_CPU_EXPONENTIAL_H_

#include <bit>
#include <cmath>
#include <cstdint>

namespace catchment {

// Returns exp(x), with x clamped to [-87, 87], so that the result neither overflows nor underflows.
inline float FastExp(float x) {
  constexpr float kLimit = 87.0f;
  constexpr float kLog2E = 1.44269504f;
  constexpr float kLog2High = 0.693145751953125f, kLog2Low = 1.42860677e-6f;  // their sum is log 2
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  x = x < -kLimit ? -kLimit : x;
  x = x > kLimit ? kLimit : x;
  const float shifted = std::fma(x, kLog2E, kRound);
  const float k = shifted - kRound;
  const float r = std::fma(-k, kLog2Low, std::fma(-k, kLog2High, x));
  float p = 1.0f / 5040;
  p = std::fma(p, r, 1.0f / 720);
  p = std::fma(p, r, 1.0f / 120);
  p = std::fma(p, r, 1.0f / 24);
  p = std::fma(p, r, 1.0f / 6);
  p = std::fma(p, r, 0.5f);
  p = std::fma(p, r, 1.0f);
  p = std::fma(p, r, 1.0f);
  const int32_t exponent = std::bit_cast<int32_t>(shifted) - std::bit_cast<int32_t>(kRound) + 127;
  return p * std::bit_cast<float>(exponent << 23);
}

inline float FastSigmoid(float x) { return 1 / (1 + FastExp(-x)); }

inline float FastTanh(float x) { return 2 / (1 + FastExp(-2 * x)) - 1; }

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CPU_EXPONENTIAL_H_
