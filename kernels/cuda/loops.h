// Loops that several layers share.
#ifndef CATCHMENT_KERNELS_CUDA_LOOPS_H_
#define CATCHMENT_KERNELS_CUDA_LOOPS_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {

// Converts images from the host's order of values to the device's: samples x area x channels = samples x
// channels x area. Also converts weights: filters x k x k x C = filters x C x k x k.
inline void ToDeviceOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                          float* to) {
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    const int channel = i % channels, place = i / channels % area, sample = i / channels / area;
    to[i] = from[(sample * channels + channel) * area + place];
  });
}

// Converts back: samples x channels x area = samples x area x channels.
inline void ToHostOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                        float* to) {
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    const int place = i % area, channel = i / area % channels, sample = i / area / channels;
    to[i] = from[(sample * area + place) * channels + channel];
  });
}

// Sets the gradient to zero where the relu that the layer applied to its output did.
inline void MaskByRelu(Device* device, const Activation& output) {
  const float* const value = output->value;
  float* const gradient = output->gradient;
  device->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
    if (!(value[i] > 0)) gradient[i] = 0;
  });
}

// Computes the gradient of a bias, the sum over all rows. values: rows x columns; sums (=): columns.
inline void SumColumns(Device* device, int64_t rows, int64_t columns, const float* values, float* sums) {
  device->SumRows(
      rows, columns, [=] CATCHMENT_ON_DEVICE(int r, int c) { return values[r * columns + c]; }, sums);
}

// Calls f(row and column of the window's output, row and column within the window) for every window, of a
// convolution or a pooling, that contains the place (y, x) of the input. W has out_height, out_width, size,
// stride and padding.
template <typename W, typename F>
CATCHMENT_ON_DEVICE void ForEachWindowOver(const W& w, int y, int x, F f) {
  for (int ky = 0; ky < w.size; ++ky) {
    const int top = y + w.padding - ky;
    if (top < 0 || top % w.stride != 0 || top / w.stride >= w.out_height) continue;
    for (int kx = 0; kx < w.size; ++kx) {
      const int left = x + w.padding - kx;
      if (left < 0 || left % w.stride != 0 || left / w.stride >= w.out_width) continue;
      f(top / w.stride, left / w.stride, ky, kx);
    }
  }
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_LOOPS_H_
