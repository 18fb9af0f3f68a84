#include "server/buffer_pool.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>

namespace catchment {
namespace {

constexpr int64_t kAlignment = 64;

}  // namespace

FloatBuffer::FloatBuffer(int64_t capacity) {
  const int64_t bytes =
      (capacity * static_cast<int64_t>(sizeof(float)) + kAlignment - 1) / kAlignment * kAlignment;
  data_.reset(static_cast<float*>(std::aligned_alloc(kAlignment, bytes)));
  CHECK(data_ != nullptr) << "out of memory for a block of " << bytes << " bytes";
}

void FloatBuffer::Free::operator()(float* data) const { std::free(data); }

void FloatBuffer::Unreference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  // Keeps the list alive, whose pool may have gone.
  const std::shared_ptr<UnusedBuffers> home = std::move(home_);
  MutexLock lock(&home->mu);
  home->buffers.emplace_back(this);
}

BufferPool::BufferPool(int64_t capacity) : capacity_(capacity), unused_(std::make_shared<UnusedBuffers>()) {}

BufferPtr BufferPool::GetBytes(int64_t bytes) {
  CHECK_LE(bytes, capacity_ * static_cast<int64_t>(sizeof(float)));
  std::unique_ptr<FloatBuffer> buffer;
  {
    MutexLock lock(&unused_->mu);
    if (!unused_->buffers.empty()) {
      buffer = std::move(unused_->buffers.back());
      unused_->buffers.pop_back();
    }
    unused_->never_used = std::min(unused_->never_used, unused_->buffers.size());
  }
  if (buffer == nullptr) buffer = std::make_unique<FloatBuffer>(capacity_);
  buffer->bytes_ = bytes;
  buffer->references_.store(1, std::memory_order_relaxed);
  buffer->home_ = unused_;
  return BufferPtr::Adopt(buffer.release());
}

void BufferPool::Trim() {
  std::vector<std::unique_ptr<FloatBuffer>> superfluous;
  MutexLock lock(&unused_->mu);
  std::vector<std::unique_ptr<FloatBuffer>>& buffers = unused_->buffers;
  const auto end = buffers.begin() + static_cast<int64_t>(unused_->never_used);
  superfluous.assign(std::make_move_iterator(buffers.begin()), std::make_move_iterator(end));
  buffers.erase(buffers.begin(), end);
  unused_->never_used = buffers.size();
}

}  // namespace catchment
