// The interface of a device for the layers in this folder: memory, copies, loops and sums.
//
// Compiled by nvcc it uses a GPU (device.cc, device_loops.h). Compiled by the host's compiler the same
// functions are plain loops on the CPU (device_host.cc, device_loops_host.h), so that the arithmetic and the
// indexing of the layers are tested without a GPU; only device.cc, device_loops.h and gemm.cc are not.
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
#include <memory>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "kernels/cuda/pack.h"
#include "kernels/cuda/precision.h"

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
  int index() const { return index_; }
  Precision precision() const { return precision_; }
  // Returns a description of the device, with how the convolutions created so far are computed.
  std::string Describe() const;
  // Counts a convolution that cuDNN suits: `how` is cuDNN's version, or why it is computed with patches
  // nevertheless. all: the gradient of its weights, too, is computed by cuDNN.
  void NoteConvolution(bool by_cudnn, const std::string& how, bool all) {
    (by_cudnn ? by_cudnn_ : with_patches_) += 1;
    gradients_with_patches_ += by_cudnn && !all;
    // One line, which is shown with the device's name.
    constexpr size_t kMaxCharacters = 300;
    std::string& text = by_cudnn ? cudnn_ : why_patches_;
    text = how.substr(0, kMaxCharacters);
    std::replace_if(
        text.begin(), text.end(), [](char c) { return c < ' '; }, ' ');
  }

  // Allocate and free memory. They wait for the device, so they are not called in a step. Allocate returns
  // memory aligned to 256 bytes, or null if the device has too little: then layers can still be created, so
  // that CheckMemory can report what all of them need, but must not run.
  void* Allocate(size_t bytes);
  void* AllocatePinned(size_t bytes);  // on the host, for copies
  void Free(void* memory, size_t bytes) noexcept;
  void FreePinned(void* memory) noexcept;
  // Throws an Error if memory that is still needed could not be allocated, or if kSpareBytes are not free.
  void CheckMemory(int batch_size) const;
  // Memory that must stay free, because kernels' code is loaded to the device when they are first launched.
  static const size_t kSpareBytes;

  // Lets copies reach memory of the host, which was not allocated by AllocatePinned, until Unpin, which waits
  // for the device. Pin returns false if the memory cannot be pinned, for example because the system limits
  // locked memory. Pages are pinned, so two vectors may share one.
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

  // Calls f(row, team) for every row by all threads of a team, in no particular order: by 32 for rows of up
  // to 1,024 values, and by 256 for longer ones.
  template <typename F>
  void ForEachRow(int64_t rows, int64_t width, F f);

  // Calls f(sequence, team) for every sequence by all threads of a team, in no particular order. A team has
  // one thread for each of up to kMaxTeamThreads values, rounded up to a multiple of 32, and does not sum.
  template <typename F>
  void ForEachSequence(int64_t sequences, int64_t values, F f);
  static constexpr int kMaxTeamThreads = 256;

  // Takes kSums sums over the rows for every column, in the same order in every run: calls f(row, column,
  // sums), where column is a multiple of kWidth, which divides `columns`, and `sums` is a Pack<kWidth>[kSums]
  // to add the values of the row to; then done(column, sums) for each column with its kSums totals.
  template <int kSums, int kWidth, typename F, typename G>
  void SumRows(int64_t rows, int64_t columns, F f, G done);

  // The largest number of values of a convolution's patches at a time. Small on the CPU, so that tests have
  // several chunks.
  static const int64_t kMaxPatchValues;

  // State of convolution.cc for this device: null at first, destroyed before the streams.
  std::shared_ptr<void>& convolutions() { return convolutions_; }

  struct Streams;
  Streams& streams() { return *streams_; }
  // Checks that work with this name, which may be mangled, was started. With CATCHMENT_CUDA_SYNC=1 in the
  // environment also waits for it, so that a failure names the work that failed.
  void Launched(const char* name);

 private:
  struct Memory {
    size_t free, total;  // bytes
  };
  // Returns null if there is not enough memory.
  void* TryAllocate(size_t bytes);
  void Release(void* memory) noexcept;
  bool TryRegister(void* memory, size_t bytes);
  void Unregister(void* memory) noexcept;  // after all pending work
  Memory memory() const;
  // Returns ", 16 convolutions by cuDNN 9.19.0, 1 with patches: REASON", or nothing.
  std::string DescribeConvolutions() const {
    std::string text;
    if (by_cudnn_ > 0) text += ", " + std::to_string(by_cudnn_) + " convolutions by " + cudnn_;
    if (gradients_with_patches_ > 0)
      text += " (" + std::to_string(gradients_with_patches_) + " gradients of weights with patches)";
    if (with_patches_ > 0)
      text += ", " + std::to_string(with_patches_) + " convolutions with patches: " + why_patches_;
    return text;
  }
  // Returns whether the environment's variable is 1.
  static bool IsSet(const char* variable);
  void Wait();  // for all pending work
  // Prepares what SumRows needs of the workspace.
  void ClearSums();

  // A sum's blocks: four for each of the 132 multiprocessors of an H100, so that sums do not depend on the
  // device.
  static constexpr int kMaxSumBlocks = 512;
  static constexpr int kSumThreads = 256, kMaxSummedValues = 8;
  // After the memory for products: how many parts of each range of columns are summed, and their sums.
  static constexpr size_t kSumCounterBytes = kMaxSumBlocks * sizeof(uint32_t);
  static constexpr size_t kWorkspace =
      kWorkspaceBytes + kSumCounterBytes + size_t{32} * kMaxSumBlocks * kMaxSummedValues * sizeof(float);

  const int index_;
  const Precision precision_;
  const bool waits_for_all_work_ = IsSet("CATCHMENT_CUDA_SYNC");
  int by_cudnn_ = 0, with_patches_ = 0;  // convolutions
  int gradients_with_patches_ = 0;       // of by_cudnn_
  std::string cudnn_, why_patches_;
  std::shared_ptr<void> convolutions_;
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
  // Calls f(first byte, bytes) for each run's part of the host's memory; once for memory that Pin has not
  // pinned.
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

// Values of the caller's for copies: the caller's memory itself if it is pinned, otherwise a pinned buffer,
// which is allocated at the first use.
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

}  // namespace catchment::cuda

#ifdef __CUDACC__
#include "kernels/cuda/device_loops.h"
#else
#include "kernels/cuda/device_loops_host.h"
#endif

#endif  // CATCHMENT_KERNELS_CUDA_DEVICE_H_
