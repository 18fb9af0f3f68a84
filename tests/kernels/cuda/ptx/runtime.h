// The state of the emulated device that the CUDA runtime and cuBLASLt share.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "tests/kernels/cuda/ptx/scheduler.h"

namespace catchment::ptx {

// Memory that was allocated, by its first byte.
class Allocations {
 public:
  // Returns memory aligned to 256 bytes that is filled with NaN, since a device's is not initialized either.
  void* Allocate(size_t bytes);
  // A fault for memory that it has not returned.
  void Free(void* memory);
  bool Contains(const void* memory, size_t bytes) const;

 private:
  std::map<const char*, size_t> bytes_;
};

struct Runtime {
  std::mutex mu;
  Scheduler scheduler;
  Allocations device, pinned;
  cudaError_t last_error = cudaSuccess;

  // Returns the stream; the default stream is a fault.
  static Stream* StreamOf(cudaStream_t stream, const std::string& user);
};

// Returns the process's one.
Runtime& TheRuntime();

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
