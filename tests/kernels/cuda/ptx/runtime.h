// The state of the emulated device that the CUDA runtime and cuBLASLt share.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_

#include <cuda_runtime_api.h>

#include <cstddef>
#include <map>
#include <mutex>
#include <string>

#include "tests/kernels/cuda/ptx/recorder.h"
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

  // Add memory that is allocated elsewhere, and take it away. Add returns false if a page has values of
  // memory that was added already.
  bool Add(void* memory, size_t bytes);
  // A fault for memory that was not added.
  void Remove(void* memory);

 private:
  std::map<const char*, size_t> bytes_;
};

struct Runtime {
  std::mutex mu;
  Scheduler scheduler;
  Allocations device, pinned;
  Allocations registered;  // by cudaHostRegister
  // Copies under way that use the host's memory: their first bytes and their sizes.
  std::multimap<const char*, size_t> host_copies;
  cudaError_t last_error = cudaSuccess;
  cudaError_t fault = cudaSuccess;  // of a kernel; all later calls fail with it
  Recording* recording = nullptr;   // null: nothing is recorded

  // Adds an operation if one is recorded. Returns whether it is also to be executed.
  bool AddRecord(const Operation& operation);

  // Returns the stream; the default stream is a fault.
  static Stream* StreamOf(cudaStream_t stream, const std::string& user);
};

// Returns the process's one.
Runtime& TheRuntime();

// Moves what the kernels since the last call have accessed to `operation`.
void TakeAccesses(Operation* operation);

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_RUNTIME_H_
