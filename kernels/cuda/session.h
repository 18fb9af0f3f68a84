// The functions of CatchmentCudaPlugin that make and run layers.
#ifndef CATCHMENT_KERNELS_CUDA_SESSION_H_
#define CATCHMENT_KERNELS_CUDA_SESSION_H_

#include "kernels/cuda/plugin_api.h"

namespace catchment::cuda {

// Fills in all of `plugin` but version, toolkit and probe; nothing in a build without the CUDA Toolkit.
void FillSession(CatchmentCudaPlugin* plugin);

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_SESSION_H_
