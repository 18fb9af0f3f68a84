// The interface of a device for the layers in this folder: memory, copies, loops and sums.
//
// Compiled by nvcc it uses a GPU. Compiled by the host's compiler (device_host.cc) the same functions are
// plain loops on the CPU, so that the arithmetic and the indexing of the layers are tested without a GPU;
// only device.cc and gemm.cc are not.
//
// Order: kernels run one after another, on one stream. Copies run on separate streams: kernels after a CopyIn
// see its values, and a CopyOut sees the results of the kernels before it. The caller must not overwrite
// memory by a CopyIn that kernels still read: all layers load parameters and samples only after the previous
// pass has been waited for (its score, or its last gradient).
// Errors: exceptions of type Error, which session.cc catches.
// Threads: one at a time, after Enter; Pin and Unpin may be called by any.
#ifndef CATCHMENT_KERNELS_CUDA_DEVICE_H_
#define CATCHMENT_KERNELS_CUDA_DEVICE_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/precision.h"

#ifdef __CUDACC__
#include <cuda_runtime.h>
#endif

namespace catchment::cuda {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Kernels count in 32 bits.
constexpr int64_t kLargest = (int64_t{1} << 31) - 1;
// Returns `value`; throws an Error if `what` has too many values for one kernel.
inline int Checked(int64_t value, const char* what) {
  if (value > kLargest)
    throw Error(std::string(what) + " has more than 2147483647 values; use a smaller batch_size");
  return static_cast<int>(value);
}

class Device {
 public:
  // `precision` is that of the factors of products.
  Device(int index, Precision precision);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Prepares the calling thread for using the device.
  void Enter();
  Precision precision() const { return precision_; }
  std::string Describe() const;

  // Allocate and free memory. They wait for the device, so they are not called in a step. Allocate returns
  // memory aligned to 256 bytes, or null if the device has too little: then layers can still be created, so
  // that CheckMemory can report what all of them need, but must not run.
  void* Allocate(size_t bytes);
  void* AllocatePinned(size_t bytes);  // on the host, for copies
  void Free(void* memory, size_t bytes) noexcept;
  void FreePinned(void* memory) noexcept;
  // Throws an Error if memory that is still needed could not be allocated.
  void CheckMemory(int batch_size) const;

  // Lets copies reach memory of the host, which was not allocated by AllocatePinned, until Unpin, which waits for
  // the device. Pin returns false if the memory cannot be pinned, as where the system limits locked memory. Pages
  // are pinned, so two vectors may share one.
  bool Pin(void* memory, size_t bytes);
  void Unpin(void* memory);
  bool IsPinned(const void* memory, size_t bytes) const;

  void CopyIn(void* device, const void* pinned, size_t bytes);
  // Returns a number for Await.
  uint64_t CopyOut(void* pinned, const void* device, size_t bytes);
  void Await(uint64_t copy_out);

  // Memory that layers share between two kernels; reserved when they are created.
  void ReserveScratch(size_t bytes);
  char* scratch() { return scratch_; }
  // Returns the memory for the device's own computations.
  void* workspace() { return workspace_; }
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // Calls f(i) for every i in [0, n), in no particular order.
  template <typename F>
  void ForEach(int64_t n, F f);

  // Sets out[c] to the sum of f(r, c) over the rows r, in the same order in every run.
  template <typename F>
  void SumRows(int64_t rows, int64_t columns, F f, float* out);

  // The largest number of values of a convolution's patches at a time. Small on the CPU, so that tests have
  // several chunks.
  static const int64_t kMostPatchValues;

  struct Streams;
  Streams& streams() { return *streams_; }

 private:
  struct Memory {
    size_t free, total;  // bytes
  };
  // Returns null if there is not enough memory.
  void* TryAllocate(size_t bytes);
  void Release(void* memory) noexcept;
  bool TryRegister(void* memory, size_t bytes);
  void Unregister(void* memory) noexcept;  // after all that is under way
  Memory memory() const;
  void Wait();  // for all that is under way
  void Launched();

  // The number of parts that a sum over many rows is divided into.
  static constexpr int kParts = 64;
  static constexpr int64_t kMostSummedColumns = int64_t{1} << 18;
  static constexpr size_t kWorkspace = kWorkspaceBytes + kParts * kMostSummedColumns * sizeof(float);

  const int index_;
  const Precision precision_;
  size_t used_ = 0, missing_ = 0;  // bytes that Allocate has returned, and that it could not
  Streams* streams_ = nullptr;
  char* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  void* workspace_ = nullptr;

  // Pages that are pinned together, by their first byte. A copy must not reach from one run into the next.
  struct Run {
    char* end;
    int users;  // calls of Pin with memory in it
  };
  // Returns the run that contains the byte, or null. Under pinned_mu_, as UnpinPages.
  const Run* RunOf(const char* byte) const;
  void UnpinPages(char* begin, char* end);
  // Calls f(first byte, bytes) for each run's part of the host's memory; once for memory that Pin has not pinned.
  template <typename F>
  void ForEachRun(const void* memory, size_t bytes, F f) const {
    const std::lock_guard<std::mutex> lock(pinned_mu_);
    for (size_t at = 0; at < bytes;) {
      const char* const first = static_cast<const char*>(memory) + at;
      const Run* const run = RunOf(first);
      const size_t part = run == nullptr ? bytes - at : std::min<size_t>(bytes - at, run->end - first);
      f(at, part);
      at += part;
    }
  }

  mutable std::mutex pinned_mu_;
  std::map<const char*, Run> runs_;
  std::map<const void*, size_t> pinned_;  // bytes of what Pin has pinned
};

// An array of values on the device, or, with kPinned, on the host.
template <typename T, bool kPinned>
class Array {
 public:
  Array(Device* device, int64_t size)
      : device_(device),
        size_(size),
        data_(static_cast<T*>(kPinned ? device->AllocatePinned(size * sizeof(T))
                                      : device->Allocate(size * sizeof(T)))) {}
  Array(Array&& other) noexcept
      : device_(std::exchange(other.device_, nullptr)), size_(other.size_), data_(other.data_) {}
  Array& operator=(Array&&) = delete;
  ~Array() {
    if (device_ != nullptr) kPinned ? device_->FreePinned(data_) : device_->Free(data_, bytes());
  }

  T* data() const { return data_; }
  int64_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(T); }

 private:
  Device* device_;
  int64_t size_;
  T* data_;
};

template <typename T = float>
using DeviceArray = Array<T, false>;
template <typename T = float>
using PinnedArray = Array<T, true>;

// Values of the caller's for copies: the caller's memory itself if it is pinned, otherwise a pinned buffer, which is
// allocated at the first use.
template <typename T>
class Staging {
 public:
  Staging(Device* device, int64_t size) : device_(device), size_(size) {}

  // Returns memory that a copy can read, with the `count` values at `host`.
  const T* Read(const T* host, int64_t count) {
    if (device_->IsPinned(host, count * sizeof(T))) return host;
    return std::copy_n(host, count, buffer()) - count;
  }

  // Returns memory that a copy can write; Finish brings all its values to `host`.
  T* Write(T* host) { return IsDirect(host) ? host : buffer(); }
  void Finish(T* host) {
    if (!IsDirect(host)) std::copy_n(buffer(), size_, host);
  }

 private:
  bool IsDirect(const T* host) const { return device_->IsPinned(host, size_ * sizeof(T)); }
  T* buffer() {
    if (!buffer_) buffer_.emplace(device_, size_);
    return buffer_->data();
  }

  Device* device_;
  int64_t size_;
  std::optional<PinnedArray<T>> buffer_;
};

#ifdef __CUDACC__

struct Device::Streams {
  cudaStream_t compute, in, out;
  cudaEvent_t copied_in, computed;
};

template <typename F>
__global__ void ForEachKernel(uint32_t n, F f) {
  const uint32_t stride = gridDim.x * blockDim.x;
  for (uint32_t i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) f(static_cast<int>(i));
}

template <typename F>
void Device::ForEach(int64_t n, F f) {
  if (n == 0) return;
  constexpr int kBlock = 256;
  constexpr int64_t kMostBlocks = 1 << 16;
  const int64_t blocks = (Checked(n, "a loop") + kBlock - 1) / kBlock;
  ForEachKernel<<<static_cast<int>(blocks < kMostBlocks ? blocks : kMostBlocks), kBlock, 0,
                  streams_->compute>>>(static_cast<uint32_t>(n), f);
  Launched();
}

// One block sums 32 columns over a part of the rows, 8 rows at a time.
template <typename F>
__global__ void SumPartKernel(int64_t rows, int columns, F f, float* parts) {
  __shared__ float sums[8][33];
  const int column = blockIdx.x * 32 + threadIdx.x;
  const int64_t begin = rows * blockIdx.y / gridDim.y, end = rows * (blockIdx.y + 1) / gridDim.y;
  float sum = 0;
  if (column < columns) {
    for (int64_t row = begin + threadIdx.y; row < end; row += 8) sum += f(static_cast<int>(row), column);
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= columns) return;
  for (int i = 1; i < 8; ++i) sum += sums[i][threadIdx.x];
  parts[static_cast<int64_t>(blockIdx.y) * columns + column] = sum;
}

template <typename F>
void Device::SumRows(int64_t rows, int64_t columns, F f, float* out) {
  if (columns > kMostSummedColumns) throw Error("sums of more than 262144 columns");
  Checked(rows, "a sum");
  const int parts = static_cast<int>(rows < 8 * kParts ? (rows + 7) / 8 : kParts);
  const int width = static_cast<int>(columns);
  float* const partial = static_cast<float*>(workspace_) + kWorkspaceBytes / sizeof(float);
  SumPartKernel<<<dim3((width + 31) / 32, parts), dim3(32, 8), 0, streams_->compute>>>(rows, width, f,
                                                                                       partial);
  Launched();
  ForEach(columns, [=] __device__(int c) {
    float sum = 0;
    for (int p = 0; p < parts; ++p) sum += partial[static_cast<int64_t>(p) * width + c];
    out[c] = sum;
  });
}

#else

template <typename F>
void Device::ForEach(int64_t n, F f) {
  for (int i = 0, end = Checked(n, "a loop"); i < end; ++i) f(i);
}

template <typename F>
void Device::SumRows(int64_t rows, int64_t columns, F f, float* out) {
  for (int64_t c = 0; c < columns; ++c) {
    double sum = 0;
    for (int64_t r = 0; r < rows; ++r) sum += f(static_cast<int>(r), static_cast<int>(c));
    out[c] = static_cast<float>(sum);
  }
}

#endif

}  // namespace catchment::cuda

#endif  // CATCHMENT_KERNELS_CUDA_DEVICE_H_
