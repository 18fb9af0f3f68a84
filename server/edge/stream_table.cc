#include "server/edge/stream_table.h"

namespace catchment {

uint64_t StreamTable::Add(const Owner& owner, std::shared_ptr<ServedStream> stream) {
  std::vector<std::shared_ptr<ServedStream>> former;
  uint64_t number;
  {
    MutexLock lock(&mu_);
    for (const Entry& entry : entries_) {
      if (entry.owner == owner) former.push_back(entry.stream);
    }
    entries_.push_back({owner, std::move(stream)});
    number = ++added_;
  }
  for (const auto& other : former) other->Replace();
  return number;
}

bool StreamTable::AddUpTo(size_t most, std::shared_ptr<ServedStream> stream) {
  MutexLock lock(&mu_);
  if (entries_.size() >= most) return false;
  entries_.push_back({Owner(), std::move(stream)});
  return true;
}

void StreamTable::Remove(const ServedStream* stream) {
  std::shared_ptr<ServedStream> last;  // destroyed without the lock
  MutexLock lock(&mu_);
  for (Entry& entry : entries_) {
    if (entry.stream.get() != stream) continue;
    last = std::move(entry.stream);
    std::swap(entry, entries_.back());
    entries_.pop_back();
    return;
  }
}

void StreamTable::Sweep(double now) {
  std::vector<Entry> entries;
  {
    MutexLock lock(&mu_);
    entries = entries_;
  }
  for (const Entry& entry : entries) entry.stream->Sweep(now);
}

size_t StreamTable::size() const {
  MutexLock lock(&mu_);
  return entries_.size();
}

}  // namespace catchment
