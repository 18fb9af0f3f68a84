// The CUDA plugin for machines without a GPU: its layers in plain loops on the processor, as two devices.
#include <cstdio>

#include "kernels/cuda/plugin.h"
#include "kernels/cuda/plugin_api.h"

namespace {

int32_t Probe(CatchmentCudaDevice* devices, int32_t, char*, int32_t) {
  for (int i = 0; i < 2; ++i) {
    std::snprintf(devices[i].name, sizeof devices[i].name, "Test Device");
    devices[i].memory_bytes = uint64_t{24} << 30;
    devices[i].capability_major = 8;
    devices[i].capability_minor = 9;
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
