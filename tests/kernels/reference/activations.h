// Gelu, tanh, sigmoid and softmax in plain loops. "=" and "+=" as in reference.h.
#ifndef CATCHMENT_TESTS_KERNELS_REFERENCE_ACTIVATIONS_H_
#define CATCHMENT_TESTS_KERNELS_REFERENCE_ACTIVATIONS_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace catchment::reference {

// x Phi(x)
template <typename T>
T Gelu(T x) {
  return x * (1 + std::erf(x / std::sqrt(T{2}))) / 2;
}

// Phi(x) + x phi(x)
template <typename T>
T GeluDerivative(T x) {
  constexpr double kTwoPi = 6.283185307179586;
  return (1 + std::erf(x / std::sqrt(T{2}))) / 2 +
         x * std::exp(-x * x / 2) / static_cast<T>(std::sqrt(kTwoPi));
}

template <typename T>
T Sigmoid(T x) {
  return 1 / (1 + std::exp(-x));
}

// out (rows x size) =
template <typename T>
void SoftmaxForward(int64_t rows, int64_t size, const T* in, T* out) {
  for (int64_t r = 0; r < rows; ++r, in += size, out += size) {
    const T largest = *std::max_element(in, in + size);
    T sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += out[i] = std::exp(in[i] - largest);
    for (int64_t i = 0; i < size; ++i) out[i] /= sum;
  }
}

// d_in =; `values` are the outputs.
template <typename T>
void SoftmaxBackward(int64_t rows, int64_t size, const T* values, const T* d_out, T* d_in) {
  for (int64_t r = 0; r < rows; ++r, values += size, d_out += size, d_in += size) {
    T sum = 0;
    for (int64_t i = 0; i < size; ++i) sum += d_out[i] * values[i];
    for (int64_t i = 0; i < size; ++i) d_in[i] = values[i] * (d_out[i] - sum);
  }
}

}  // namespace catchment::reference

#endif  // CATCHMENT_TESTS_KERNELS_REFERENCE_ACTIVATIONS_H_
