// The CUDA plugin for machines without a GPU: its layers in plain loops on the processor, as two devices,
// whose compute capabilities $CATCHMENT_HOST_DEVICE_CAPABILITIES overrides ("7.5 9.0").
#include <cstdio>
#include <cstdlib>

#include "kernels/cuda/plugin.h"
#include "kernels/cuda/plugin_api.h"

namespace {

int32_t Probe(CatchmentCudaDevice* devices, int32_t, char*, int32_t) {
  const char* const capabilities = std::getenv("CATCHMENT_HOST_DEVICE_CAPABILITIES");
  for (int i = 0; i < 2; ++i) {
    std::snprintf(devices[i].name, sizeof devices[i].name, "Test Device");
    devices[i].memory_bytes = uint64_t{24} << 30;
    devices[i].capability_major = 8;
    devices[i].capability_minor = 9;
  }
  if (capabilities != nullptr) {
    std::sscanf(capabilities, "%d.%d %d.%d", &devices[0].capability_major, &devices[0].capability_minor,
                &devices[1].capability_major, &devices[1].capability_minor);
  }
  return 2;
}

CatchmentCudaPlugin MakePlugin() {
  CatchmentCudaPlugin plugin = {};
  plugin.version = PLUGIN_VERSION;
  plugin.toolkit = "CUDA 13.0, cuBLAS 13.1";
  plugin.probe = Probe;
  catchment::cuda::SetLayerFunctions(&plugin);
  return plugin;
}

}  // namespace

extern "C" const CatchmentCudaPlugin* catchment_cuda_plugin() {
  static const CatchmentCudaPlugin plugin = MakePlugin();
  return &plugin;
}
