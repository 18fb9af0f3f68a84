// A plugin as tests want it: FAKE_VERSION, and one device.
#include <cstdio>

#include "kernels/cuda/plugin_api.h"

extern "C" const CatchmentCudaPlugin* catchment_cuda_plugin() {
  static const CatchmentCudaPlugin plugin = {
      FAKE_VERSION, "CUDA 13.0, cuBLAS 13.1", [](CatchmentCudaDevice* devices, int32_t, char*, int32_t) {
        std::snprintf(devices[0].name, sizeof devices[0].name, "Test Device");
        devices[0].memory_bytes = uint64_t{24} << 30;
        devices[0].capability_major = 8;
        devices[0].capability_minor = 9;
        return int32_t{1};
      }};
  return &plugin;
}
