#include "server/shard/deadlines.h"

#include <algorithm>

namespace catchment {

void Deadlines::Set(uint32_t block, double time) {
  MutexLock lock(&mu_);
  if (of_block_[block] == time) return;
  of_block_[block] = time;
  if (time == kNever) return;
  if (heap_.size() >= 2 * of_block_.size()) DropAllReplaced();
  heap_.push_back({time, block});
  std::push_heap(heap_.begin(), heap_.end(), IsLater);
}

double Deadlines::Next() {
  MutexLock lock(&mu_);
  DropReplaced();
  return heap_.empty() ? kNever : heap_.front().time;
}

std::vector<uint32_t> Deadlines::TakeDue(double now) {
  std::vector<uint32_t> blocks;
  MutexLock lock(&mu_);
  for (DropReplaced(); !heap_.empty() && heap_.front().time <= now; DropReplaced()) {
    // This replaces the entry on top.
    const uint32_t block = heap_.front().block;
    of_block_[block] = kNever;
    blocks.push_back(block);
  }
  return blocks;
}

void Deadlines::DropReplaced() {
  while (!heap_.empty() && of_block_[heap_.front().block] != heap_.front().time) Pop();
}

void Deadlines::DropAllReplaced() {
  size_t kept = 0;
  for (const Entry& entry : heap_) {
    if (of_block_[entry.block] == entry.time) heap_[kept++] = entry;
  }
  heap_.resize(kept);
  std::make_heap(heap_.begin(), heap_.end(), IsLater);
}

void Deadlines::Pop() {
  std::pop_heap(heap_.begin(), heap_.end(), IsLater);
  heap_.pop_back();
}

}  // namespace catchment
