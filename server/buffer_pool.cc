#include "server/buffer_pool.h"

#include <glog/logging.h>

#include <cstdlib>

namespace catchment {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

FloatBuffer::FloatBuffer(int64_t capacity) {
  const int64_t bytes = (capacity * static_cast<int64_t>(sizeof(float)) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
  CHECK(data_ != nullptr) << "out of memory for a block of " << bytes << " bytes";
}

void FloatBuffer::Free::operator()(float* data) const { std::free(data); }

BufferPool::BufferPool(int64_t capacity, int keep)
    : capacity_(capacity), keep_(keep), shared_(std::make_shared<Shared>()) {}

BufferPtr BufferPool::Get(int64_t size) {
  CHECK_LE(size, capacity_);
  std::unique_ptr<FloatBuffer> buffer;
  {
    MutexLock lock(&shared_->mu);
    if (!shared_->unused.empty()) {
      buffer = std::move(shared_->unused.back());
      shared_->unused.pop_back();
    }
  }
  if (buffer == nullptr) buffer = std::make_unique<FloatBuffer>(capacity_);
  buffer->size_ = size;
  return BufferPtr(buffer.release(), [shared = shared_, keep = keep_](FloatBuffer* returned) {
    std::unique_ptr<FloatBuffer> owned(returned);
    MutexLock lock(&shared->mu);
    if (shared->unused.size() < keep) shared->unused.push_back(std::move(owned));
  });
}

}  // namespace catchment
