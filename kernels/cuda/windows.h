// Which windows, of a convolution or a pooling, see a place of the input.
#ifndef CATCHMENT_KERNELS_CUDA_WINDOWS_H_
#define CATCHMENT_KERNELS_CUDA_WINDOWS_H_

#include "kernels/cuda/device.h"

namespace catchment::cuda {

// f(row and column of the window's output, row and column within the window), window row by window row. W has
// out_height, out_width, size, stride and padding.
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

#endif  // CATCHMENT_KERNELS_CUDA_WINDOWS_H_
