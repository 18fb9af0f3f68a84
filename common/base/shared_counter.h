// A counter in memory of this process that others may read while it changes.
#ifndef CATCHMENT_COMMON_BASE_SHARED_COUNTER_H_
#define CATCHMENT_COMMON_BASE_SHARED_COUNTER_H_

#include <atomic>
#include <cstdint>

namespace catchment {

// Other processes read it with MappedArena::Counter (shared_arena.h). Threads: one writes.
class SharedCounter {
 public:
  explicit SharedCounter(void* memory) : value_(*static_cast<uint64_t*>(memory)) {}

  uint64_t value() const { return value_.load(std::memory_order_relaxed); }
  // Writes of this thread before the call are visible to those who read the new value.
  void Set(uint64_t value) { value_.store(value, std::memory_order_release); }
  // Others see the new value before they see writes of this thread after the call.
  void AdvanceTo(uint64_t value) {
    value_.store(value, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }

 private:
  std::atomic_ref<uint64_t> value_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_SHARED_COUNTER_H_
