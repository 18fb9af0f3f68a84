// Float vectors for payloads, used over and over: in steady state nothing is allocated for them.
#ifndef CATCHMENT_SERVER_BUFFER_POOL_H_
#define CATCHMENT_SERVER_BUFFER_POOL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "common/mutex.h"

namespace catchment {

// A vector of floats, 64-byte aligned, contents undefined at first. Shared by all who read it.
class FloatBuffer {
 public:
  explicit FloatBuffer(int64_t capacity);

  float* data() { return data_.get(); }
  const float* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  int64_t bytes() const { return size_ * static_cast<int64_t>(sizeof(float)); }

 private:
  friend class BufferPool;
  struct Free {
    void operator()(float* data) const;
  };

  std::unique_ptr<float[], Free> data_;
  int64_t size_ = 0;
};

using BufferPtr = std::shared_ptr<FloatBuffer>;

// Threads: safe. Buffers may outlive the pool.
class BufferPool {
 public:
  // `capacity`: floats in every buffer. At most `keep` unused ones are kept.
  BufferPool(int64_t capacity, int keep);

  // `size` is at most the capacity.
  BufferPtr Get(int64_t size);

 private:
  struct Shared {
    Mutex mu;
    std::vector<std::unique_ptr<FloatBuffer>> unused ABSL_GUARDED_BY(mu);
  };

  const int64_t capacity_;
  const size_t keep_;
  const std::shared_ptr<Shared> shared_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_BUFFER_POOL_H_
