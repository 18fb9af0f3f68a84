// What the CUDA runtime says of this machine. In a build without the CUDA Toolkit: that there is none.
#ifndef CATCHMENT_KERNELS_CUDA_PROBE_H_
#define CATCHMENT_KERNELS_CUDA_PROBE_H_

#include "kernels/cuda/plugin_api.h"

namespace catchment {

// As CatchmentCudaPlugin::toolkit and ::probe.
const char* CudaToolkit();
int32_t ProbeCudaDevices(CatchmentCudaDevice* devices, int32_t capacity, char* why, int32_t why_size);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CUDA_PROBE_H_
