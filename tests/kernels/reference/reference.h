// Each kernel in plain loops: the definition that the fast kernels are compared with.
//
// Shapes: N samples, C x H x W each; weights as PyTorch lays them out (OIHW, out x in); all row-major.
// "=" and "+=" behind a gradient say whether it is overwritten or added to. T is float or double.
#ifndef CATCHMENT_TESTS_KERNELS_REFERENCE_REFERENCE_H_
#define CATCHMENT_TESTS_KERNELS_REFERENCE_REFERENCE_H_

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "kernels/dropout_mask.h"

namespace catchment::reference {

struct Window {
  int64_t channels, height, width;  // of the input
  int64_t filters;                  // of the output; pooling: channels
  int64_t size, stride, padding;
  int64_t groups = 1;  // convolution

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
        for (int64_t c = 0; c < w.channels / w.groups; ++c)
          for (int64_t ky = 0; ky < w.size; ++ky)
            for (int64_t kx = 0; kx < w.size; ++kx) {
              const int64_t channel = o / (w.filters / w.groups) * (w.channels / w.groups) + c;
              const int64_t in_y = y * w.stride + ky - w.padding, in_x = x * w.stride + kx - w.padding;
              if (in_y < 0 || in_y >= w.height || in_x < 0 || in_x >= w.width) continue;
              f((channel * w.height + in_y) * w.width + in_x,
                ((o * (w.channels / w.groups) + c) * w.size + ky) * w.size + kx,
                (o * w.out_height() + y) * w.out_width() + x);
            }
}

// out (N x filters x H' x W') =; bias may be null, here and below.
template <typename T>
void Conv2dForward(int64_t n, const Window& w, const T* in, const T* weight, const T* bias, T* out) {
  const int64_t area = w.out_height() * w.out_width();
  for (int64_t s = 0; s < n; ++s, in += w.in_size(), out += w.out_size()) {
    for (int64_t i = 0; i < w.out_size(); ++i) out[i] = bias != nullptr ? bias[i / area] : T{0};
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
  std::fill_n(d_weight, w.filters * w.channels / w.groups * w.size * w.size, T{0});
  if (d_bias != nullptr) std::fill_n(d_bias, w.filters, T{0});
  for (int64_t s = 0; s < n; ++s, in += w.in_size(), d_out += w.out_size()) {
    ForEachProduct(w, [&](int64_t i, int64_t k, int64_t o) { d_weight[k] += in[i] * d_out[o]; });
    for (int64_t i = 0; d_bias != nullptr && i < w.out_size(); ++i) d_bias[i / area] += d_out[i];
  }
}

// out (N x units) = in (N x inputs) weight' (inputs x units) + bias
template <typename T>
void DenseForward(int64_t n, int64_t inputs, int64_t units, const T* in, const T* weight, const T* bias,
                  T* out) {
  for (int64_t s = 0; s < n; ++s)
    for (int64_t u = 0; u < units; ++u) {
      T sum = bias != nullptr ? bias[u] : T{0};
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
  if (d_bias != nullptr) std::fill_n(d_bias, units, T{0});
  for (int64_t s = 0; s < n; ++s)
    for (int64_t u = 0; u < units; ++u) {
      const T d = d_out[s * units + u];
      if (d_bias != nullptr) d_bias[u] += d;
      for (int64_t i = 0; i < inputs; ++i) d_weight[u * inputs + i] += d * in[s * inputs + i];
    }
}

// Calls f(index within its channel) for each place of the input that window (y, x) covers.
template <typename F>
void ForEachPlace(const Window& w, int64_t y, int64_t x, F f) {
  for (int64_t in_y = y * w.stride - w.padding; in_y < y * w.stride - w.padding + w.size; ++in_y)
    for (int64_t in_x = x * w.stride - w.padding; in_x < x * w.stride - w.padding + w.size; ++in_x)
      if (in_y >= 0 && in_y < w.height && in_x >= 0 && in_x < w.width) f(in_y * w.width + in_x);
}

// Calls f(input index, output index), over all samples, for every value that is averaged into an output.
template <typename F>
void ForEachAveraged(int64_t n, const Window& w, F f) {
  for (int64_t c = 0; c < n * w.channels; ++c)
    for (int64_t y = 0; y < w.out_height(); ++y)
      for (int64_t x = 0; x < w.out_width(); ++x)
        ForEachPlace(w, y, x, [&](int64_t place) {
          f(c * w.height * w.width + place, (c * w.out_height() + y) * w.out_width() + x);
        });
}

// out =; zeros of the padding count.
template <typename T>
void AveragePoolForward(int64_t n, const Window& w, const T* in, T* out) {
  std::fill_n(out, n * w.out_size(), T{0});
  const T scale = T{1} / static_cast<T>(w.size * w.size);
  ForEachAveraged(n, w, [&](int64_t i, int64_t o) { out[o] += in[i] * scale; });
}

// d_in =
template <typename T>
void AveragePoolBackward(int64_t n, const Window& w, const T* d_out, T* d_in) {
  std::fill_n(d_in, n * w.in_size(), T{0});
  const T scale = T{1} / static_cast<T>(w.size * w.size);
  ForEachAveraged(n, w, [&](int64_t i, int64_t o) { d_in[i] += d_out[o] * scale; });
}

// out (channels) = the mean over each channel's values; `channels` of all samples together.
template <typename T>
void ChannelMeansForward(int64_t channels, int64_t area, const T* in, T* out) {
  for (int64_t c = 0; c < channels; ++c) {
    out[c] = 0;
    for (int64_t i = 0; i < area; ++i) out[c] += *in++ / static_cast<T>(area);
  }
}

// d_in =
template <typename T>
void ChannelMeansBackward(int64_t channels, int64_t area, const T* d_out, T* d_in) {
  for (int64_t c = 0; c < channels; ++c) {
    for (int64_t i = 0; i < area; ++i) *d_in++ = d_out[c] / static_cast<T>(area);
  }
}

// out =; where[i] is the index, within its sample, of the input that output i is: of equal ones the first.
template <typename T>
void MaxPoolForward(int64_t n, const Window& w, const T* in, T* out, int64_t* where) {
  for (int64_t s = 0; s < n; ++s, in += w.in_size())
    for (int64_t c = 0; c < w.channels; ++c)
      for (int64_t y = 0; y < w.out_height(); ++y)
        for (int64_t x = 0; x < w.out_width(); ++x) {
          int64_t best = -1;
          ForEachPlace(w, y, x, [&](int64_t place) {
            const int64_t i = c * w.height * w.width + place;
            if (best < 0 || in[i] > in[best]) best = i;
          });
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

}  // namespace catchment::reference

#endif  // CATCHMENT_TESTS_KERNELS_REFERENCE_REFERENCE_H_
