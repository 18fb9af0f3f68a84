// The parts of the plugin in a build without the CUDA Toolkit.
#include <cstdio>

#include "kernels/cuda/plugin.h"

namespace catchment::cuda {

const char* Toolkit() { return ""; }

int32_t ProbeDevices(CatchmentCudaDevice*, int32_t, char* why, int32_t why_size) {
  std::snprintf(why, why_size, "the plugin was built without the CUDA Toolkit");
  return 0;
}

void SetLayerFunctions(CatchmentCudaPlugin*) {}

}  // namespace catchment::cuda
