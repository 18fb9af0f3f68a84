// A queue in one array that keeps its memory, whereas std::deque allocates and frees parts as it moves.
#ifndef CATCHMENT_SERVER_SHARD_RING_H_
#define CATCHMENT_SERVER_SHARD_RING_H_

#include <cstddef>
#include <utility>
#include <vector>

namespace catchment {

template <typename T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  // Returns the value that is the i-th oldest, from 0.
  const T& operator[](size_t i) const { return slots_[(first_ + i) % slots_.size()]; }

  void Push(T value) {
    if (size_ == slots_.size()) Grow();
    slots_[(first_ + size_++) % slots_.size()] = std::move(value);
  }
  // Removes and returns the oldest value. The ring must not be empty.
  T Pop() {
    T value = std::exchange(slots_[first_], T());
    first_ = (first_ + 1) % slots_.size();
    --size_;
    return value;
  }
  void Clear() {
    while (!empty()) Pop();
  }

 private:
  void Grow() {
    std::vector<T> larger(slots_.empty() ? 4 : 2 * slots_.size());
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move(slots_[(first_ + i) % slots_.size()]);
    slots_ = std::move(larger);
    first_ = 0;
  }

  std::vector<T> slots_;
  size_t first_ = 0;
  size_t size_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_RING_H_
