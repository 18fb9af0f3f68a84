// A pool of float vectors for payloads, so that nothing is allocated for them in steady state.
#ifndef CATCHMENT_SERVER_SHARD_BUFFER_POOL_H_
#define CATCHMENT_SERVER_SHARD_BUFFER_POOL_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <memory_resource>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "common/base/mutex.h"

namespace catchment {

class FloatBuffer;

// The unused buffers of one capacity in a pool.
struct UnusedBuffers {
  Mutex mu;
  std::vector<std::unique_ptr<FloatBuffer>> buffers ABSL_GUARDED_BY(mu);  // the most recently used one last
  size_t never_used ABSL_GUARDED_BY(mu) = 0;                              // of them, since the last Trim
};

// A vector of floats, aligned to 64 bytes, with undefined initial contents.
class FloatBuffer {
 public:
  static constexpr int64_t kDataOffset = 64;  // from the generation

  FloatBuffer(int64_t capacity, std::shared_ptr<std::pmr::memory_resource> memory);
  ~FloatBuffer();

  float* data() { return reinterpret_cast<float*>(memory_ + kDataOffset); }
  const float* data() const { return reinterpret_cast<const float*>(memory_ + kDataOffset); }
  // A number that changes before the buffer gets other contents, and that no other use of any buffer has: it
  // tells processes that read the memory whether they have read what they were to read.
  uint64_t* generation() { return reinterpret_cast<uint64_t*>(memory_); }
  // Leaves the contents to other processes that have mapped the memory, for as long as they exist: the memory
  // is neither used again nor freed by this process, but unmapped with its arena. Needs a reference.
  void LeaveToReaders() { left_to_readers_ = true; }
  // For an encoded payload only bytes() is meaningful.
  int64_t size() const { return bytes_ / static_cast<int64_t>(sizeof(float)); }
  int64_t bytes() const { return bytes_; }

 private:
  friend class BufferPool;
  friend class BufferPtr;
  void Unreference();

  const std::shared_ptr<std::pmr::memory_resource> resource_;  // null: the heap
  const int64_t allocated_;                                    // bytes
  char* const memory_;                                         // the generation, then the data
  int64_t bytes_ = 0;
  std::atomic<int> references_{0};
  std::atomic<bool> left_to_readers_{false};
  std::shared_ptr<UnusedBuffers> home_;  // the pool to return it to; null while it is there
};

// A shared reference to a buffer, which returns to its pool with the last reference. The count is in the
// buffer itself, so that none is allocated. Threads: as with std::shared_ptr.
class BufferPtr {
 public:
  BufferPtr() = default;
  BufferPtr(std::nullptr_t) {}  // NOLINT: as with std::shared_ptr
  BufferPtr(const BufferPtr& other) : buffer_(other.buffer_) {
    if (buffer_ != nullptr) buffer_->references_.fetch_add(1, std::memory_order_relaxed);
  }
  BufferPtr(BufferPtr&& other) noexcept : buffer_(std::exchange(other.buffer_, nullptr)) {}
  BufferPtr& operator=(BufferPtr other) noexcept {
    std::swap(buffer_, other.buffer_);
    return *this;
  }
  ~BufferPtr() {
    if (buffer_ != nullptr) buffer_->Unreference();
  }

  FloatBuffer* get() const { return buffer_; }
  FloatBuffer* operator->() const { return buffer_; }
  FloatBuffer& operator*() const { return *buffer_; }
  bool operator==(std::nullptr_t) const { return buffer_ == nullptr; }
  void reset() { *this = nullptr; }

  // Passes the reference to the caller as a plain pointer, until Adopt takes it back.
  FloatBuffer* Release() && { return std::exchange(buffer_, nullptr); }
  static BufferPtr Adopt(FloatBuffer* buffer) {
    BufferPtr adopted;
    adopted.buffer_ = buffer;
    return adopted;
  }

 private:
  FloatBuffer* buffer_ = nullptr;
};

// Threads: safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // `capacities`, at least one, are the numbers of floats that a buffer may hold. Get uses the smallest
  // sufficient one.
  explicit BufferPool(absl::Span<const int64_t> capacities);
  explicit BufferPool(int64_t capacity) : BufferPool(absl::MakeConstSpan(&capacity, 1)) {}

  // `size` is at most the largest capacity.
  BufferPtr Get(int64_t size) { return GetBytes(size * static_cast<int64_t>(sizeof(float))); }
  // Returns a buffer for an encoded payload. `bytes` is at most that of the largest capacity.
  BufferPtr GetBytes(int64_t bytes);

  // Allocates further buffers from `memory` instead of the heap. Call it before other threads use the pool.
  void UseMemory(std::shared_ptr<std::pmr::memory_resource> memory) { memory_ = std::move(memory); }

  // Frees the buffers that were not used since the last call, so that the pool is as large as was needed at
  // most between two calls.
  void Trim();

 private:
  struct SizeClass {
    int64_t capacity;
    std::shared_ptr<UnusedBuffers> unused;
  };
  std::vector<SizeClass> size_classes_;  // ascending by capacity; never changed
  std::shared_ptr<std::pmr::memory_resource> memory_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_BUFFER_POOL_H_
