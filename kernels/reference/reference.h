// What each kernel computes, in plain loops: the definition that the fast ones are compared with.
//
// Shapes: N samples, C x H x W each; weights as PyTorch lays them out (OIHW, out x in); all row-major.
// "=" and "+=" behind a gradient say whether it is overwritten or added to. T is float or double.
#ifndef CATCHMENT_KERNELS_REFERENCE_REFERENCE_H_
#define CATCHMENT_KERNELS_REFERENCE_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/dropout_mask.h"

namespace catchment::reference {

struct Window {
  int64_t channels, height, width;  // of the input
  int64_t filters;                  // of the output; pooling: channels
  int64_t size, stride, padding;

  int64_t out_height() const { return (height + 2 * padding - size) / stride + 1; }
  int64_t out_width() const { return (width + 2 * padding - size) / stride + 1; }
  int64_t in_size() const { return channels * height * width; }
  int64_t out_size() const { return filters * out_height() * out_width(); }
};

// Calls f(input index, weight index, output index), all within one sample, for every product of the
// convolution that does not fall into the padding.
template <typename F>
void ForEachProduct(const Window& w, F f) {
  for (int64_t o = 0; o < w.filters; ++o)
    for (int64_t y = 0; y < w.out_height(); ++y)
      for (int64_t x = 0; x < w.out_width(); ++x)
        for (int64_t c = 0; c < w.channels; ++c)
          for (int64_t ky = 0; ky < w.size; ++ky)
            for (int64_t kx = 0; kx < w.size; ++kx) {
              const int64_t in_y = y * w.stride + ky - w.padding, in_x = x * w.stride + kx - w.padding;
              if (in_y < 0 || in_y >= w.height || in_x < 0 || in_x >= w.width) continue;
              f((c * w.height + in_y) * w.width + in_x, ((o * w.channels + c) * w.size + ky) * w.size + kx,
                (o * w.out_height() + y) * w.out_width() + x);
            }
}

// out (N x filters x H' x W') =
template <typename T>
void Conv2dForward(int64_t n, const Window& w, const T* in, const T* weight, const T* bias, T* out) {
  const int64_t area = w.out_height() * w.out_width();
  for (int64_t s = 0; s < n; ++s, in += w.in_size(), out += w.out_size()) {
    for (int64_t i = 0; i < w.out_size(); ++i) out[i] = bias[i / area];
    ForEachProduct(w, [&](int64_t i, int64_t k, int64_t o) { out[o] += in[i] * weight[k]; });
  }
}

// d_in =
template <typename T>
void Conv2dBackwardData(int64_t n, const Window& w, const T* d_out, const T* weight, T* d_in) {
  std::fill_n(d_in, n * w.in_size(), T{0});
  for (int64_t s = 0; s < n; ++s, d_in += w.in_size(), d_out += w.out_size()) {
    ForEachProduct(w, [&](int64_t i, int64_t k, int64_t o) { d_in[i] += d_out[o] * weight[k]; });
  }
}

// d_weight =, d_bias =
template <typename T>
void Conv2dBackwardWeights(int64_t n, const Window& w, const T* in, const T* d_out, T* d_weight, T* d_bias) {
  const int64_t area = w.out_height() * w.out_width();
  std::fill_n(d_weight, w.filters * w.channels * w.size * w.size, T{0});
  std::fill_n(d_bias, w.filters, T{0});
  for (int64_t s = 0; s < n; ++s, in += w.in_size(), d_out += w.out_size()) {
    ForEachProduct(w, [&](int64_t i, int64_t k, int64_t o) { d_weight[k] += in[i] * d_out[o]; });
    for (int64_t i = 0; i < w.out_size(); ++i) d_bias[i / area] += d_out[i];
  }
}

// out (N x units) = in (N x inputs) weight' (inputs x units) + bias
template <typename T>
void DenseForward(int64_t n, int64_t inputs, int64_t units, const T* in, const T* weight, const T* bias,
                  T* out) {
  for (int64_t s = 0; s < n; ++s)
    for (int64_t u = 0; u < units; ++u) {
      T sum = bias[u];
      for (int64_t i = 0; i < inputs; ++i) sum += in[s * inputs + i] * weight[u * inputs + i];
      out[s * units + u] = sum;
    }
}

// d_in =
template <typename T>
void DenseBackwardData(int64_t n, int64_t inputs, int64_t units, const T* d_out, const T* weight, T* d_in) {
  std::fill_n(d_in, n * inputs, T{0});
  for (int64_t s = 0; s < n; ++s)
    for (int64_t u = 0; u < units; ++u)
      for (int64_t i = 0; i < inputs; ++i)
        d_in[s * inputs + i] += d_out[s * units + u] * weight[u * inputs + i];
}

// d_weight =, d_bias =
template <typename T>
void DenseBackwardWeights(int64_t n, int64_t inputs, int64_t units, const T* in, const T* d_out, T* d_weight,
                          T* d_bias) {
  std::fill_n(d_weight, units * inputs, T{0});
  std::fill_n(d_bias, units, T{0});
  for (int64_t s = 0; s < n; ++s)
    for (int64_t u = 0; u < units; ++u) {
      const T d = d_out[s * units + u];
      d_bias[u] += d;
      for (int64_t i = 0; i < inputs; ++i) d_weight[u * inputs + i] += d * in[s * inputs + i];
    }
}

// out =; where[i] is the index, within its sample, of the input that output i is: of equal ones the first.
template <typename T>
void MaxPoolForward(int64_t n, const Window& w, const T* in, T* out, int64_t* where) {
  for (int64_t s = 0; s < n; ++s, in += w.in_size())
    for (int64_t c = 0; c < w.channels; ++c)
      for (int64_t y = 0; y < w.out_height(); ++y)
        for (int64_t x = 0; x < w.out_width(); ++x) {
          int64_t best = (c * w.height + y * w.stride) * w.width + x * w.stride;
          for (int64_t ky = 0; ky < w.size; ++ky)
            for (int64_t kx = 0; kx < w.size; ++kx) {
              const int64_t i = (c * w.height + y * w.stride + ky) * w.width + x * w.stride + kx;
              if (in[i] > in[best]) best = i;
            }
          *where++ = best;
          *out++ = in[best];
        }
}

// d_in =
template <typename T>
void MaxPoolBackward(int64_t n, const Window& w, const T* d_out, const int64_t* where, T* d_in) {
  std::fill_n(d_in, n * w.in_size(), T{0});
  for (int64_t s = 0; s < n; ++s, d_in += w.in_size()) {
    for (int64_t i = 0; i < w.out_size(); ++i) d_in[*where++] += *d_out++;
  }
}

// values =
template <typename T>
void ReluForward(int64_t size, T* values) {
  for (int64_t i = 0; i < size; ++i) values[i] = std::max(values[i], T{0});
}

// gradient =; `values` are the outputs.
template <typename T>
void ReluBackward(int64_t size, const T* values, T* gradient) {
  for (int64_t i = 0; i < size; ++i) gradient[i] = values[i] > 0 ? gradient[i] : T{0};
}

// values = ; forward and backward are the same.
template <typename T>
void Dropout(int64_t n, int64_t size, float rate, uint64_t seed, int layer, const uint64_t* sample_ids,
             T* values) {
  for (int64_t s = 0; s < n; ++s) {
    const DropoutKey key = MakeDropoutKey(seed, layer, sample_ids[s]);
    for (int64_t i = 0; i < size; ++i, ++values) {
      const bool drop = DropoutHash(key, static_cast<uint32_t>(i)) < DropoutThreshold(rate);
      *values = drop ? T{0} : *values * static_cast<T>(1 / (1 - rate));
    }
  }
}

// Returns the sum over the samples of -log softmax(logits)[label]; d_logits = gradient of the mean.
template <typename T>
double SoftmaxCrossEntropy(int64_t n, int64_t classes, const T* logits, const int32_t* labels, T* d_logits) {
  double loss = 0;
  for (int64_t s = 0; s < n; ++s, logits += classes, d_logits += classes) {
    const T largest = *std::max_element(logits, logits + classes);
    double sum = 0;
    for (int64_t c = 0; c < classes; ++c) sum += std::exp(static_cast<double>(logits[c] - largest));
    loss += std::log(sum) - (logits[labels[s]] - largest);
    for (int64_t c = 0; c < classes; ++c) {
      const double softmax = std::exp(static_cast<double>(logits[c] - largest)) / sum;
      d_logits[c] = static_cast<T>((softmax - (c == labels[s])) / static_cast<double>(n));
    }
  }
  return loss;
}

}  // namespace catchment::reference

#endif  // CATCHMENT_KERNELS_REFERENCE_REFERENCE_H_
