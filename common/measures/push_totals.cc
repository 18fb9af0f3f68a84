#include "common/measures/push_totals.h"

#include <algorithm>

namespace catchment {

void PushTotals::Add(const v1::WorkerStatistics& worker, bool outcomes) {
  if (outcomes) {
    applied += worker.applied();
    waiting += worker.waiting();
    late += worker.late();
    split += worker.split();
    non_finite += worker.non_finite();
    duplicate += worker.duplicate();
  }
  staleness.Add(worker);
  const int entries = std::min(worker.staleness_us_size(), worker.staleness_us_counts_size());
  for (int i = 0; i < entries; ++i)
    staleness_us.Add(static_cast<double>(worker.staleness_us(i)), worker.staleness_us_counts(i));
  staleness_seconds_max = std::max(staleness_seconds_max, worker.staleness_seconds_max());
  gap.count += worker.gap_count();
  gap.sum += worker.gap_sum();
  gap_max = std::max(gap_max, worker.gap_max());
  share_sum += worker.share_sum();
}

// The middle of a bucket may exceed all values in it, so it is limited to the maximum.
std::optional<double> PushTotals::SecondsQuantile(double share) const {
  if (staleness_us.count() == 0) return std::nullopt;
  return std::min(staleness_us.Quantile(share) / 1e6, staleness_seconds_max);
}

std::optional<double> PushTotals::SecondsMax() const {
  return staleness_us.count() > 0 ? std::optional(staleness_seconds_max) : std::nullopt;
}

PushTotals TotalPushes(const v1::JobStatus& status) {
  PushTotals totals;
  for (const v1::ShardReport& shard : status.shards()) {
    for (const v1::WorkerStatistics& worker : shard.workers()) totals.Add(worker, shard.shard() == 0);
  }
  return totals;
}

PushTotals TotalPushes(const v1::ShardReport& shard) {
  PushTotals totals;
  for (const v1::WorkerStatistics& worker : shard.workers()) totals.Add(worker);
  return totals;
}

}  // namespace catchment
