// Opens the CUDA plugin, and says what is missing where it cannot be used.
#ifndef CATCHMENT_KERNELS_CUDA_LOADER_H_
#define CATCHMENT_KERNELS_CUDA_LOADER_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

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

// Opens the plugin at `path` (once opened it stays) and lists the devices, at least one.
// Errors: NotFound, no plugin; FailedPrecondition, it cannot be opened (a library that it needs, cuBLAS above
// all, is missing), it is no plugin or another version's, or there is no driver or device. The message says
// which.
absl::StatusOr<std::vector<CudaDevice>> ProbeCuda(const std::string& path);

}  // namespace catchment

#endif  // CATCHMENT_KERNELS_CUDA_LOADER_H_
