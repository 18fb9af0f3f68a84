// The patches of a convolution (conv2d.cc): a row for each output pixel, with the values of its window.
//
// Shapes: images are height x width x channels; a row has k k C/groups values, row by row of the window, and
// is padded with zeros to stride_of_rows.
// Threads: as device.h. Errors: those of Checked.
#ifndef CATCHMENT_KERNELS_CUDA_PATCHES_H_
#define CATCHMENT_KERNELS_CUDA_PATCHES_H_

#include <cstdint>

#include "kernels/cuda/device.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/loops.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {

struct Window {
  int in_height, in_width, in_channels;  // all groups
  Steps rows, columns;
  int channels;        // of one group
  int stride_of_rows;  // values from a row of patches, or weights, to the next

  int area() const { return rows.size * columns.size; }
  int row_values() const { return area() * channels; }
  bool is_pointwise() const {
    return channels == in_channels && rows.size == 1 && rows.stride == 1 && rows.padding == 0;
  }
};

Window WindowOf(const Device& device, const CatchmentCudaLayer& spec);

// Sets `patches` to the windows of `samples` samples, from `first_sample` on, in the channels of `group`.
void GatherPatches(Device* device, const Window& window, int group, const Tensor& input, int64_t first_sample,
                   int64_t samples, const FactorWriter& patches);

// Sets the gradient of the input, for every value of these samples and channels, to the sum over the windows
// that contain it.
void GatherInputGradient(Device* device, const Window& window, int group, const Tensor& input,
                         int64_t first_sample, int64_t samples, const float* d_patches);

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_PATCHES_H_
