// Records what a program makes the emulated device do: launches with the memory that they touch, products,
// copies, and the host's waits.
//
// Threads: as the runtime, one at a time. The order of the streams must be eager (scheduler.h), so that a
// kernel executes when it is launched.
#ifndef CATCHMENT_TESTS_KERNELS_CUDA_PTX_RECORDER_H_
#define CATCHMENT_TESTS_KERNELS_CUDA_PTX_RECORDER_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace catchment::ptx {

struct Operation {
  enum class Kind { kKernel, kProduct, kCopyIn, kCopyOut, kCopyOnDevice, kWait };
  Kind kind = Kind::kKernel;
  std::string name;  // of a kernel, mangled

  // For a kernel: the sectors of 32 bytes that it reads and writes, each counted once however many threads
  // access it. For a
  // product: its matrices. For a copy: bytes_read is its size.
  double bytes_read = 0, bytes_written = 0;
  double instructions = 0;     // of all threads
  double longest_thread = 0;   // instructions of the thread that executes the most
  double accesses = 0;         // of threads to the device's memory
  double accessed_bytes = 0;   // of these accesses, together
  double threads = 0;          // of the launch
  double multiplications = 0;  // of a product
  int value_bytes = 4;         // of a product's factors
  // For a copy between host and device: the host's memory belongs to the plugin, so the host copies the
  // values once more.
  bool staged = false;
  bool polled = false;  // of a wait: the host asks for a while before it blocks
  size_t awaited = 0;   // of a wait: the number of operations that were issued before it ends
};

struct Recording {
  // Without it, kernels are only counted: nothing that depends on their execution is set.
  bool execute = true;
  std::vector<Operation> operations;
};

// Records to `recording` from now on, until it is called with null. Products and copies are then not
// executed.
void Record(Recording* recording);

}  // namespace catchment::ptx

#endif  // CATCHMENT_TESTS_KERNELS_CUDA_PTX_RECORDER_H_
