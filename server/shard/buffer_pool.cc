#include "server/shard/buffer_pool.h"

#include <glog/logging.h>

#include <algorithm>
#include <iterator>
#include <set>
#include <utility>

#include "common/base/shared_arena.h"

namespace catchment {
namespace {

constexpr int64_t kAlignment = 64;

// Returns a number that no buffer of the process has had.
uint64_t NextGeneration() {
  static std::atomic<uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

std::pmr::memory_resource& ResourceOf(const std::shared_ptr<std::pmr::memory_resource>& memory) {
  return memory == nullptr ? *std::pmr::new_delete_resource() : *memory;
}

}  // namespace

FloatBuffer::FloatBuffer(int64_t capacity, std::shared_ptr<std::pmr::memory_resource> memory)
    : resource_(std::move(memory)),
      allocated_(kDataOffset + capacity * static_cast<int64_t>(sizeof(float))),
      memory_(static_cast<char*>(ResourceOf(resource_).allocate(allocated_, kAlignment))) {
  *generation() = 0;
}

FloatBuffer::~FloatBuffer() {
  if (!left_to_readers_) ResourceOf(resource_).deallocate(memory_, allocated_, kAlignment);
}

void FloatBuffer::Unreference() {
  if (references_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  // Keeps the list alive, whose pool may have been destroyed.
  const std::shared_ptr<UnusedBuffers> home = std::move(home_);
  if (left_to_readers_) {
    delete this;
    return;
  }
  MutexLock lock(&home->mu);
  home->buffers.emplace_back(this);
}

BufferPool::BufferPool(absl::Span<const int64_t> capacities) {
  const std::set<int64_t> ascending(capacities.begin(), capacities.end());
  for (int64_t capacity : ascending) size_classes_.push_back({capacity, std::make_shared<UnusedBuffers>()});
}

BufferPtr BufferPool::GetBytes(int64_t bytes) {
  const auto size_class =
      std::find_if(size_classes_.begin(), size_classes_.end(), [bytes](const SizeClass& size_class) {
        return bytes <= size_class.capacity * static_cast<int64_t>(sizeof(float));
      });
  CHECK(size_class != size_classes_.end()) << bytes << " bytes in one block";
  const std::shared_ptr<UnusedBuffers>& unused = size_class->unused;
  std::unique_ptr<FloatBuffer> buffer;
  {
    MutexLock lock(&unused->mu);
    if (!unused->buffers.empty()) {
      buffer = std::move(unused->buffers.back());
      unused->buffers.pop_back();
    }
    unused->never_used = std::min(unused->never_used, unused->buffers.size());
  }
  if (buffer == nullptr) buffer = std::make_unique<FloatBuffer>(size_class->capacity, memory_);
  SharedCounter(buffer->generation()).AdvanceTo(NextGeneration());
  buffer->bytes_ = bytes;
  buffer->references_.store(1, std::memory_order_relaxed);
  buffer->home_ = unused;
  return BufferPtr::Adopt(buffer.release());
}

void BufferPool::Trim() {
  std::vector<std::unique_ptr<FloatBuffer>> superfluous;
  for (const SizeClass& size_class : size_classes_) {
    MutexLock lock(&size_class.unused->mu);
    std::vector<std::unique_ptr<FloatBuffer>>& buffers = size_class.unused->buffers;
    const auto end = buffers.begin() + static_cast<int64_t>(size_class.unused->never_used);
    superfluous.insert(superfluous.end(), std::make_move_iterator(buffers.begin()),
                       std::make_move_iterator(end));
    buffers.erase(buffers.begin(), end);
    size_class.unused->never_used = buffers.size();
  }
}

}  // namespace catchment
