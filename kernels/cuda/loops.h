// Loops that several layers share.
#ifndef CATCHMENT_KERNELS_CUDA_LOOPS_H_
#define CATCHMENT_KERNELS_CUDA_LOOPS_H_

#include <algorithm>

#include "kernels/cuda/device.h"
#include "kernels/cuda/divisor.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/node.h"
#include "kernels/cuda/pack.h"

namespace catchment::cuda {

// Converts images from the host's order of values to the device's: samples x area x channels = samples x
// channels x area. Also converts weights: filters x k x k x C = filters x C x k x k.
inline void ToDeviceOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                          float* to) {
  const Divisor by_channels(channels), by_area(area);
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    int channel, place;
    const int sample = by_area.Divide(by_channels.Divide(i, &channel), &place);
    to[i] = from[(sample * channels + channel) * area + place];
  });
}

// Converts back: samples x channels x area = samples x area x channels.
inline void ToHostOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                        float* to) {
  const Divisor by_channels(channels), by_area(area);
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    int channel, place;
    const int sample = by_channels.Divide(by_area.Divide(i, &place), &channel);
    to[i] = from[(sample * area + place) * channels + channel];
  });
}

// out[i] = f(values of each input at i), for a pack of values.
template <int kWidth, typename F, typename... Inputs>
struct Map {
  float* out;
  F f;
  const float* inputs[sizeof...(Inputs)];

  CATCHMENT_ON_DEVICE void operator()(int i) const {
    Pack<kWidth> packs[sizeof...(Inputs)], result;
    for (size_t j = 0; j < sizeof...(Inputs); ++j) packs[j] = LoadPack<kWidth>(inputs[j] + i * kWidth);
    for (int k = 0; k < kWidth; ++k) {
      if constexpr (sizeof...(Inputs) == 1) result.at[k] = f(packs[0].at[k]);
      if constexpr (sizeof...(Inputs) == 2) result.at[k] = f(packs[0].at[k], packs[1].at[k]);
      if constexpr (sizeof...(Inputs) == 3) result.at[k] = f(packs[0].at[k], packs[1].at[k], packs[2].at[k]);
    }
    StorePack(out + i * kWidth, result);
  }
};

// Sets out[i] to f(inputs[i]...) for each of `n` values, in arrays of the device that begin at their
// allocations. `out` may be one of the inputs.
template <typename F, typename... Inputs>
void ForEachValue(Device* device, int64_t n, float* out, F f, const Inputs*... inputs) {
  WithPackWidth<4>(n, [&](auto width) {
    device->ForEach(n / width, Map<width(), F, Inputs...>{out, f, {inputs...}});
  });
}

// Returns the gradient of what a relu gets, given the gradient of its output and that output.
template <int kWidth>
CATCHMENT_ON_DEVICE Pack<kWidth> ZeroWhereNotPositive(const Pack<kWidth>& output, Pack<kWidth> gradient) {
  for (int k = 0; k < kWidth; ++k) {
    if (!(output.at[k] > 0)) gradient.at[k] = 0;
  }
  return gradient;
}

// The gradient of a layer's output, rows x columns, as its backward pass needs it.
template <int kWidth>
struct OutputGradient {
  const float* value;  // the output of a relu, which masks the gradient; null without a relu
  float* gradient;
  int columns;
  FactorWriter factor;
  int stride;  // of the factor's rows

  // Returns the gradient, and writes it to the memory that products read.
  CATCHMENT_ON_DEVICE Pack<kWidth> Take(int row, int column) const {
    const int64_t at = int64_t{row} * columns + column;
    Pack<kWidth> pack = LoadPack<kWidth>(gradient + at);
    if (value != nullptr) {
      pack = ZeroWhereNotPositive(LoadPack<kWidth>(value + at), pack);
      if (factor.to == nullptr) StorePack(gradient + at, pack);
    }
    factor.Write(int64_t{row} * stride + column, pack);
    return pack;
  }
};

template <int kWidth>
void TakeOutputGradient(Device* device, int64_t rows, const OutputGradient<kWidth>& d_out, float* bias) {
  if (bias != nullptr) {
    device->SumRows<1, kWidth>(
        rows, d_out.columns,
        [=] CATCHMENT_ON_DEVICE(int r, int c, Pack<kWidth>* sums) {
          const Pack<kWidth> gradient = d_out.Take(r, c);
          for (int k = 0; k < kWidth; ++k) sums[0].at[k] += gradient.at[k];
        },
        [=] CATCHMENT_ON_DEVICE(int c, const float* sums) { bias[c] = sums[0]; });
    return;
  }
  if (d_out.value == nullptr && d_out.factor.to == nullptr) return;
  const Divisor by_packs(d_out.columns / kWidth);
  device->ForEach(rows * d_out.columns / kWidth, [=] CATCHMENT_ON_DEVICE(int i) {
    int pack;
    const int row = by_packs.Divide(i, &pack);
    d_out.Take(row, pack * kWidth);
  });
}

// Reads the gradient of a layer's output, rows x columns, once: sets it to zero wherever the layer's relu
// did, writes it as a factor with rows of `stride` values if `factor` has memory (then only there), and sets
// `bias` to the sums of its columns unless it is null.
inline void TakeOutputGradient(Device* device, const Tensor& output, int columns, bool relu,
                               const FactorWriter& factor, int64_t stride, float* bias) {
  WithPackWidth<8>(columns, [&](auto width) {
    TakeOutputGradient<width()>(
        device, output.size() / columns,
        {relu ? output.value : nullptr, output.gradient, columns, factor, static_cast<int>(stride)}, bias);
  });
}

// The positions of a window along one side of an image.
struct Steps {
  Steps(int64_t out, int64_t size, int64_t stride, int64_t padding)
      : out(static_cast<int>(out)),
        size(static_cast<int>(size)),
        stride(static_cast<int>(stride)),
        padding(static_cast<int>(padding)),
        by_stride(stride) {}

  // Sets [first, end) to the outputs whose windows contain the place `at` of the input.
  CATCHMENT_ON_DEVICE void Over(int at, int* first, int* end) const {
    const int last = (at + padding) / by_stride + 1, before = at + padding - size;
    *end = last < out ? last : out;
    *first = before < 0 ? 0 : before / by_stride + 1;
  }
  // Returns the input's place that is at `offset` in the window of `output`; it may be outside of the image.
  CATCHMENT_ON_DEVICE int Input(int output, int offset) const { return output * stride + offset - padding; }

  int out, size, stride, padding;
  Divisor by_stride;
};

// Calls f(row and column of the window's output, row and column within the window) for every window, of a
// convolution or a pooling, that contains the place (y, x) of the input.
template <typename F>
CATCHMENT_ON_DEVICE void ForEachWindowOver(const Steps& rows, const Steps& columns, int y, int x, F f) {
  int top, bottom, left, right;
  rows.Over(y, &top, &bottom);
  columns.Over(x, &left, &right);
  for (int out_y = top; out_y < bottom; ++out_y) {
    for (int out_x = left; out_x < right; ++out_x) {
      f(out_y, out_x, y - rows.Input(out_y, 0), x - columns.Input(out_x, 0));
    }
  }
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_LOOPS_H_
