#include "server/master/checkpoint_tracker.h"

#include <algorithm>

namespace catchment {

std::vector<CheckpointTracker::Whole> CheckpointTracker::Observe(const v1::ShardReport& report) {
  std::map<uint64_t, v1::SavedShard>& saved = saved_[report.shard()];
  saved.clear();
  for (const v1::SavedShard& one : report.saved()) saved[one.checkpoint()] = one;
  if (!heard_[report.shard()]) {
    heard_[report.shard()] = true;
    if (!saved.empty()) old_ = std::max(old_, saved.rbegin()->first);
  }
  std::vector<Whole> whole;
  for (const auto& [number, one] : saved) {
    if (number <= last_ || !AllSaved(number)) continue;
    last_ = number;
    if (number <= old_) continue;
    whole.push_back({number, {}});
    for (const auto& shard : saved_) whole.back().shards.push_back(shard.at(number));
  }
  return whole;
}

bool CheckpointTracker::AllSaved(uint64_t number) const {
  return std::all_of(saved_.begin(), saved_.end(),
                     [number](const auto& shard) { return shard.count(number) > 0; });
}

}  // namespace catchment
