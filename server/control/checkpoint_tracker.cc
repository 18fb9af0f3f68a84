#include "server/control/checkpoint_tracker.h"

#include <algorithm>

namespace catchment {

std::vector<CheckpointTracker::Saved> CheckpointTracker::Observe(const v1::ShardReport& report) {
  std::map<uint64_t, v1::SavedShard>& saved = saved_[report.shard()];
  saved.clear();
  for (const v1::SavedShard& one : report.saved()) saved[one.checkpoint()] = one;
  if (!heard_[report.shard()]) {
    heard_[report.shard()] = true;
    if (!saved.empty()) old_ = std::max(old_, saved.rbegin()->first);
  }
  std::vector<Saved> newly_saved;
  for (const auto& [number, one] : saved) {
    if (number <= last_ || !AllSaved(number)) continue;
    last_ = number;
    if (number <= old_) continue;
    newly_saved.push_back({number, {}});
    for (const auto& shard : saved_) newly_saved.back().shards.push_back(shard.at(number));
  }
  return newly_saved;
}

Cut CutOf(const CheckpointTracker::Saved& saved) {
  Cut cut;
  std::vector<std::map<uint64_t, uint64_t>> steps;  // by shard and incarnation
  std::map<uint64_t, uint64_t> begun;               // by incarnation
  for (const v1::SavedShard& shard : saved.shards) {
    // Versions differ only if a worker was lost in between; its samples are pending again.
    cut.version = std::max(cut.version, shard.version());
    std::map<uint64_t, uint64_t>& of_shard = steps.emplace_back();
    for (int i = 0; i < std::min(shard.incarnations_size(), shard.settled_steps_size()); ++i) {
      of_shard[shard.incarnations(i)] = shard.settled_steps(i);
    }
    for (int i = 0; i < std::min(shard.incarnations_size(), shard.begun_steps_size()); ++i) {
      uint64_t& most = begun[shard.incarnations(i)];
      most = std::max(most, shard.begun_steps(i));
    }
  }
  cut.begun_steps = [begun = std::move(begun)](uint64_t holder) {
    const auto found = begun.find(holder);
    return found == begun.end() ? 0 : found->second;
  };
  cut.settled_steps = [steps = std::move(steps)](uint64_t holder) {
    uint64_t settled = UINT64_MAX;
    for (const std::map<uint64_t, uint64_t>& of_shard : steps) {
      const auto found = of_shard.find(holder);
      if (found != of_shard.end()) {
        settled = std::min(settled, found->second);
      } else if (of_shard.empty() || holder > of_shard.rbegin()->first) {
        // The shard did not know the holder yet. A holder that it no longer knows has nothing left to settle,
        // because another worker has taken its index.
        settled = 0;
      }
    }
    return settled;
  };
  return cut;
}

bool CheckpointTracker::AllSaved(uint64_t number) const {
  return std::all_of(saved_.begin(), saved_.end(),
                     [number](const auto& shard) { return shard.count(number) > 0; });
}

v1::CheckpointTrackerImage CheckpointTracker::Save() const {
  v1::CheckpointTrackerImage image;
  image.set_earlier(old_);
  image.set_last(last_);
  image.set_recorded(recorded_);
  return image;
}

void CheckpointTracker::Restore(const v1::CheckpointTrackerImage& image) {
  std::fill(heard_.begin(), heard_.end(), true);
  old_ = image.earlier();
  last_ = image.last();
  recorded_ = image.recorded();
}

}  // namespace catchment
