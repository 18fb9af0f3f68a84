// What the layers in this folder are written against: memory, copies, loops and sums on a device.
//
// Built by nvcc it is a GPU. Built by the host's compiler (device_host.cc) it is the same calls in plain
// loops on the processor, so that all arithmetic and indexing of the layers is tested where there is no GPU;
// what then has never run is device.cc and gemm.cc alone.
//
// Order: kernels run one after another, on one stream. Copies run on streams of their own: kernels that come
// after a CopyIn see it, a CopyOut sees the kernels that came before it. Whoever calls must not overwrite
// device memory by a CopyIn that kernels still read: all layers here load parameters and samples only once
// the pass before has been waited for (a score, or the last gradient). Errors: exceptions of type Error,
// which end at the plugin's border (plugin.cc). Threads: one at a time, after Enter.
#ifndef CATCHMENT_KERNELS_CUDA_DEVICE_H_
#define CATCHMENT_KERNELS_CUDA_DEVICE_H_

#include <cstddef>
#include <cstdint>
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
// `value`, or an Error that says that `what` has too many values for one kernel.
inline int Checked(int64_t value, const char* what) {
  if (value > kLargest)
    throw Error(std::string(what) + " has more than 2147483647 values; use a smaller batch_size");
  return static_cast<int>(value);
}

class Device {
 public:
  // `precision`: of the factors of products.
  Device(int index, Precision precision);
  ~Device();
  Device(const Device&) = delete;
  Device& operator=(const Device&) = delete;

  // Called by a thread before it uses the device.
  void Enter();
  Precision precision() const { return precision_; }
  std::string Describe() const;

  // Not on the way of a step: these wait for the device. Allocate (aligned to 256 bytes) gives null where the
  // device has too little memory: layers are still made, so that CheckMemory can say what all of them need,
  // but must not run.
  void* Allocate(size_t bytes);
  void* AllocatePinned(size_t bytes);  // on the host, for copies
  void Free(void* memory, size_t bytes) noexcept;
  void FreePinned(void* memory) noexcept;
  // An Error where something that is still wanted could not be had.
  void CheckMemory(int batch_size) const;

  void CopyIn(void* device, const void* pinned, size_t bytes);
  // Its number is for Await.
  uint64_t CopyOut(void* pinned, const void* device, size_t bytes);
  void Await(uint64_t copy_out);

  // Memory that layers share, from one kernel to the next; reserved when they are made.
  void ReserveScratch(size_t bytes);
  char* scratch() { return scratch_; }
  // Another one, of the device's own work.
  void* workspace() { return workspace_; }
  static constexpr size_t kWorkspaceBytes = size_t{32} << 20;

  // f(i) for every i in [0, n), in no order.
  template <typename F>
  void ForEach(int64_t n, F f);

  // out[c] = the sum of f(r, c) over the rows r, in the same order in every run.
  template <typename F>
  void SumRows(int64_t rows, int64_t columns, F f, float* out);

  // A convolution makes its patches for so many samples at a time that they are not more values than this.
  // Few on the processor, so that tests meet many chunks.
  static const int64_t kMostPatchValues;

  struct Streams;
  Streams& streams() { return *streams_; }

 private:
  struct Memory {
    size_t free, total;  // bytes
  };
  // Null: there is not so much.
  void* TryAllocate(size_t bytes);
  void Release(void* memory) noexcept;
  Memory memory() const;
  void Wait();  // for all that is under way
  void Launched();

  // A sum over many rows is taken in so many parts first.
  static constexpr int kParts = 64;
  static constexpr int64_t kMostSummedColumns = int64_t{1} << 18;
  static constexpr size_t kWorkspace = kWorkspaceBytes + kParts * kMostSummedColumns * sizeof(float);

  const int index_;
  const Precision precision_;
  size_t used_ = 0, missing_ = 0;  // bytes that Allocate gave, and that it could not give
  Streams* streams_ = nullptr;
  char* scratch_ = nullptr;
  size_t scratch_bytes_ = 0;
  void* workspace_ = nullptr;
};

// Values of a device, or, Pinned, of the host.
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

// One block: 32 columns, 8 rows at a time, a part of all rows.
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
