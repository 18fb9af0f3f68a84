// Batch norm and layer norm in plain loops. "=" and "+=" as in reference.h.
//
// Both give y = (x - mean) / sqrt(variance + epsilon) * weight + bias, with the values' own mean and variance
// over a set of them: batch norm's is a channel in a (ghost) batch, layer norm's a sample or a step.
#ifndef CATCHMENT_TESTS_KERNELS_REFERENCE_NORMALIZATION_H_
#define CATCHMENT_TESTS_KERNELS_REFERENCE_NORMALIZATION_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace catchment::reference {

template <typename T>
struct Moments {
  T mean = 0;
  T variance = 0;
};

// Returns the moments of `count` values x(0), x(1), ...
template <typename T, typename X>
Moments<T> MomentsOf(int64_t count, X x) {
  Moments<T> moments;
  for (int64_t i = 0; i < count; ++i) moments.mean += x(i) / static_cast<T>(count);
  for (int64_t i = 0; i < count; ++i) {
    moments.variance += (x(i) - moments.mean) * (x(i) - moments.mean) / static_cast<T>(count);
  }
  return moments;
}

struct BatchShape {
  int64_t samples, channels, area;  // N x C x area
  int64_t ghost_batch;              // samples; the last batch may have fewer
};

// Calls f(channel, count, index), index(i) that of the i-th of count values, for each channel of each ghost
// batch.
template <typename F>
void ForEachBatchSet(const BatchShape& s, F f) {
  for (int64_t begin = 0; begin < s.samples; begin += s.ghost_batch) {
    const int64_t batch = std::min(s.ghost_batch, s.samples - begin);
    for (int64_t c = 0; c < s.channels; ++c) {
      f(c, batch * s.area,
        [=](int64_t i) { return ((begin + i / s.area) * s.channels + c) * s.area + i % s.area; });
    }
  }
}

// out =
template <typename T>
void BatchNormForward(const BatchShape& s, T epsilon, const T* in, const T* weight, const T* bias, T* out) {
  ForEachBatchSet(s, [&](int64_t c, int64_t count, auto index) {
    const Moments<T> moments = MomentsOf<T>(count, [&](int64_t i) { return in[index(i)]; });
    const T deviation = std::sqrt(moments.variance + epsilon);
    for (int64_t i = 0; i < count; ++i) {
      out[index(i)] = (in[index(i)] - moments.mean) / deviation * weight[c] + bias[c];
    }
  });
}

// The gradient of the normalised values, d(0), d(1), ..., becomes that of the values, by write(i, value).
template <typename T, typename X, typename D, typename Write>
void NormalizeBackward(int64_t count, T epsilon, X x, D d, Write write) {
  const Moments<T> moments = MomentsOf<T>(count, x);
  const T deviation = std::sqrt(moments.variance + epsilon);
  T d_mean = 0, projection = 0;
  for (int64_t i = 0; i < count; ++i) {
    d_mean += d(i) / static_cast<T>(count);
    projection += d(i) * (x(i) - moments.mean) / deviation / static_cast<T>(count);
  }
  for (int64_t i = 0; i < count; ++i) {
    write(i, (d(i) - d_mean - (x(i) - moments.mean) / deviation * projection) / deviation);
  }
}

// d_in =, d_weight =, d_bias =
template <typename T>
void BatchNormBackward(const BatchShape& s, T epsilon, const T* in, const T* weight, const T* d_out, T* d_in,
                       T* d_weight, T* d_bias) {
  std::fill_n(d_weight, s.channels, T{0});
  std::fill_n(d_bias, s.channels, T{0});
  ForEachBatchSet(s, [&](int64_t c, int64_t count, auto index) {
    const auto x = [&](int64_t i) { return in[index(i)]; };
    const Moments<T> moments = MomentsOf<T>(count, x);
    for (int64_t i = 0; i < count; ++i) {
      d_weight[c] += d_out[index(i)] * (x(i) - moments.mean) / std::sqrt(moments.variance + epsilon);
      d_bias[c] += d_out[index(i)];
    }
    NormalizeBackward(
        count, epsilon, x, [&](int64_t i) { return d_out[index(i)] * weight[c]; },
        [&](int64_t i, T value) { d_in[index(i)] = value; });
  });
}

// out (rows x size) =; weight and bias have `size` values.
template <typename T>
void LayerNormForward(int64_t rows, int64_t size, T epsilon, const T* in, const T* weight, const T* bias,
                      T* out) {
  for (int64_t r = 0; r < rows; ++r, in += size, out += size) {
    const Moments<T> moments = MomentsOf<T>(size, [&](int64_t i) { return in[i]; });
    const T deviation = std::sqrt(moments.variance + epsilon);
    for (int64_t i = 0; i < size; ++i) out[i] = (in[i] - moments.mean) / deviation * weight[i] + bias[i];
  }
}

// d_in =, d_weight =, d_bias =
template <typename T>
void LayerNormBackward(int64_t rows, int64_t size, T epsilon, const T* in, const T* weight, const T* d_out,
                       T* d_in, T* d_weight, T* d_bias) {
  std::fill_n(d_weight, size, T{0});
  std::fill_n(d_bias, size, T{0});
  for (int64_t r = 0; r < rows; ++r, in += size, d_out += size, d_in += size) {
    const auto x = [&](int64_t i) { return in[i]; };
    const Moments<T> moments = MomentsOf<T>(size, x);
    for (int64_t i = 0; i < size; ++i) {
      d_weight[i] += d_out[i] * (in[i] - moments.mean) / std::sqrt(moments.variance + epsilon);
      d_bias[i] += d_out[i];
    }
    NormalizeBackward(
        size, epsilon, x, [&](int64_t i) { return d_out[i] * weight[i]; },
        [&](int64_t i, T value) { d_in[i] = value; });
  }
}

}  // namespace catchment::reference

#endif  // CATCHMENT_TESTS_KERNELS_REFERENCE_NORMALIZATION_H_
