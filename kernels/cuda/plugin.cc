// libcatchment_cuda.so. It is linked to cuBLAS, so it can be opened only if cuBLAS is installed; the
// program that opens it also runs without. It does not log: errors are returned to the caller.
#include "kernels/cuda/plugin.h"

#include "kernels/cuda/plugin_api.h"

namespace {

CatchmentCudaPlugin MakePlugin() {
  CatchmentCudaPlugin plugin = {};
  plugin.version = CATCHMENT_CUDA_PLUGIN_VERSION;
  plugin.toolkit = catchment::cuda::Toolkit();
  plugin.probe = catchment::cuda::ProbeDevices;
  catchment::cuda::SetLayerFunctions(&plugin);
  return plugin;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const CatchmentCudaPlugin* catchment_cuda_plugin() {
  static const CatchmentCudaPlugin plugin = MakePlugin();
  return &plugin;
}
