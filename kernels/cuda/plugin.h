// The parts of the CUDA plugin. In a build without the CUDA Toolkit they are those of plugin_stub.cc.
#ifndef CATCHMENT_KERNELS_CUDA_PLUGIN_H_
#define CATCHMENT_KERNELS_CUDA_PLUGIN_H_

#include "kernels/cuda/plugin_api.h"

namespace catchment::cuda {

// Return and do what CatchmentCudaPlugin::toolkit and ::probe say.
const char* Toolkit();
int32_t ProbeDevices(CatchmentCudaDevice* devices, int32_t capacity, char* why, int32_t why_size);

// Sets the functions that create and run layers: all of `plugin` but version, toolkit and probe. Without the
// CUDA Toolkit they stay null.
void SetLayerFunctions(CatchmentCudaPlugin* plugin);

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_PLUGIN_H_
