// From the host's order of an image's values to the device's, and back.
#ifndef CATCHMENT_KERNELS_CUDA_ORDER_H_
#define CATCHMENT_KERNELS_CUDA_ORDER_H_

#include "kernels/cuda/device.h"

namespace catchment::cuda {

// samples x area x channels = samples x channels x area. Also of weights: filters x k x k x C = filters x C x
// k x k.
inline void ToDeviceOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                          float* to) {
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    const int channel = i % channels, place = i / channels % area, sample = i / channels / area;
    to[i] = from[(sample * channels + channel) * area + place];
  });
}

// samples x channels x area = samples x area x channels
inline void ToHostOrder(Device* device, int64_t samples, int channels, int area, const float* from,
                        float* to) {
  device->ForEach(samples * channels * area, [=] CATCHMENT_ON_DEVICE(int i) {
    const int place = i % area, channel = i / area % channels, sample = i / area / channels;
    to[i] = from[(sample * area + place) * channels + channel];
  });
}

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_ORDER_H_
