#include "common/measures/quorum_total.h"

#include <algorithm>

namespace catchment {

double QuorumTotal::merged_mean() const {
  double contributions = 0, counted = 0;
  for (const auto& [merged_here, times] : merged) {
    contributions += static_cast<double>(merged_here) * static_cast<double>(times);
    counted += static_cast<double>(times);
  }
  return counted > 0 ? contributions / counted : 0;
}

double QuorumTotal::grace_seconds_mean() const {
  return updates() > 0 ? grace_seconds / static_cast<double>(updates()) : 0;
}

std::optional<QuorumTotal> TotalQuorum(const v1::JobStatus& status) {
  QuorumTotal total;
  for (const v1::ShardReport& shard : status.shards()) {
    const v1::QuorumStatistics& quorum = shard.quorum();
    total.by_all += quorum.by_all();
    total.by_grace += quorum.by_grace();
    total.by_loss += quorum.by_loss();
    total.grace_seconds += quorum.grace_seconds();
    for (int i = 0; i < std::min(quorum.merged_values_size(), quorum.merged_counts_size()); ++i)
      total.merged[quorum.merged_values(i)] += quorum.merged_counts(i);
  }
  if (total.updates() == 0) return std::nullopt;
  return total;
}

}  // namespace catchment
