#include "server/shard/quorum_counts.h"

namespace catchment {

void QuorumCounts::Count(End end, double grace_seconds, absl::Span<const Share> shares) {
  uint64_t samples = 0;
  for (const Share& share : shares) samples += share.samples;
  MutexLock lock(&mu_);
  ++(end == End::kAll ? by_all_ : end == End::kGrace ? by_grace_ : by_loss_);
  grace_seconds_ += grace_seconds;
  ++merged_[shares.size()];
  if (samples == 0) return;
  for (const Share& share : shares)
    shares_[share.worker] += static_cast<double>(share.samples) / static_cast<double>(samples);
}

v1::QuorumStatistics QuorumCounts::Statistics() const {
  MutexLock lock(&mu_);
  v1::QuorumStatistics statistics;
  statistics.set_by_all(by_all_);
  statistics.set_by_grace(by_grace_);
  statistics.set_by_loss(by_loss_);
  statistics.set_grace_seconds(grace_seconds_);
  for (const auto& [contributions, updates] : merged_) {
    statistics.add_merged_values(contributions);
    statistics.add_merged_counts(updates);
  }
  return statistics;
}

double QuorumCounts::SharesOf(uint32_t worker) const {
  MutexLock lock(&mu_);
  const auto found = shares_.find(worker);
  return found == shares_.end() ? 0 : found->second;
}

}  // namespace catchment
