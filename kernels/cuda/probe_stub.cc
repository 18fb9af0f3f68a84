#include <cstdio>

#include "kernels/cuda/probe.h"

namespace catchment {

const char* CudaToolkit() { return ""; }

int32_t ProbeCudaDevices(CatchmentCudaDevice*, int32_t, char* why, int32_t why_size) {
  std::snprintf(why, why_size, "the plugin was built without the CUDA Toolkit");
  return 0;
}

}  // namespace catchment
