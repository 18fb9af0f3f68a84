// The relu that a layer does on its own output, backward.
#ifndef CATCHMENT_KERNELS_CUDA_RELU_GRADIENT_H_
#define CATCHMENT_KERNELS_CUDA_RELU_GRADIENT_H_

#include "kernels/cuda/device.h"
#include "kernels/cuda/node.h"

namespace catchment::cuda {

inline void MaskByRelu(Device* device, const Activation& output) {
  const float* const value = output->value;
  float* const gradient = output->gradient;
  device->ForEach(output->size(), [=] CATCHMENT_ON_DEVICE(int i) {
    if (!(value[i] > 0)) gradient[i] = 0;
  });
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_RELU_GRADIENT_H_
