// Opens the CUDA plugin, or reports the missing file or library.
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

// Returns "NVIDIA H200, 140 GiB, compute capability 9.0".
std::string Describe(const CudaDevice& device);

// Returns $CATCHMENT_CUDA_PLUGIN, or libcatchment_cuda.so in `folder`, by default that of the running
// executable.
std::string CudaPluginPath();
std::string CudaPluginPath(const std::string& folder);

// Returns whether the plugin at `path` can be opened, for --version: "plugin PATH, built with CUDA 12.4", "no
// plugin at PATH", or why it cannot be used. Devices are not looked for.
std::string DescribeCudaPlugin(const std::string& path);

// Opens the plugin at `path`; it stays open.
// Errors: NotFound if there is no such file; FailedPrecondition if it cannot be opened (mostly because cuBLAS
// is missing), or is not a plugin of this version. The message says which.
absl::StatusOr<const CatchmentCudaPlugin*> OpenCudaPlugin(const std::string& path);

// Returns the devices, at least one. Errors: FailedPrecondition if there is no driver or no device; the
// message says which.
absl::StatusOr<std::vector<CudaDevice>> ListCudaDevices(const CatchmentCudaPlugin& plugin);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CUDA_LOADER_H_
