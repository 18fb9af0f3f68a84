// Opens the CUDA plugin, and says what is missing where it cannot be used.
#ifndef CATCHMENT_KERNELS_CUDA_LOADER_H_
#define CATCHMENT_KERNELS_CUDA_LOADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/cuda/plugin_api.h"

namespace catchment {

struct CudaDevice {
  std::string name;
  uint64_t memory_bytes = 0;
  int capability_major = 0;
  int capability_minor = 0;
};

// "NVIDIA H200, 140 GiB, compute capability 9.0".
std::string Describe(const CudaDevice& device);

// $CATCHMENT_CUDA_PLUGIN, or libcatchment_cuda.so beside the running executable.
std::string CudaPluginPath();

// Opens the plugin at `path`; once opened it stays.
// Errors: NotFound, no plugin; FailedPrecondition, it cannot be opened (a library that it needs, cuBLAS above
// all, is missing), or it is no plugin or another version's. The message says which.
absl::StatusOr<const CatchmentCudaPlugin*> OpenCudaPlugin(const std::string& path);

// At least one. Error: FailedPrecondition, there is no driver or device; the message says which.
absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices(const CatchmentCudaPlugin& plugin);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CUDA_LOADER_H_
