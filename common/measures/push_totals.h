// The outcomes of pushes, their staleness and their gap, added up over workers and shards.
//
// Units: updates; times in seconds. Threads: not thread-safe.
#ifndef CATCHMENT_COMMON_MEASURES_PUSH_TOTALS_H_
#define CATCHMENT_COMMON_MEASURES_PUSH_TOTALS_H_

#include <cstdint>
#include <optional>

#include "common/base/latency_histogram.h"
#include "common/measures/staleness.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

// The number of pushes that have a gap, and the sum of the gaps.
struct GapTotal {
  uint64_t count = 0;
  double sum = 0;

  // Returns the mean of the gaps that `before` does not contain; nothing if there are none.
  std::optional<double> MeanSince(const GapTotal& before) const {
    if (count <= before.count) return std::nullopt;
    return (sum - before.sum) / static_cast<double>(count - before.count);
  }
};

struct PushTotals {
  uint64_t applied = 0, waiting = 0, late = 0, split = 0, non_finite = 0, duplicate = 0;
  StalenessDistribution staleness;
  LatencyHistogram staleness_us;
  double staleness_seconds_max = 0;
  GapTotal gap;
  double gap_max = 0;
  double share_sum = 0;

  // Adds a worker at a shard. Every shard receives all pushes, so over several shards the outcomes of one of
  // them are added.
  void Add(const v1::WorkerStatistics& worker, bool outcomes = true);
  // Return nothing if no time and no gap was measured.
  std::optional<double> SecondsQuantile(double share) const;
  std::optional<double> SecondsMax() const;
  std::optional<double> GapMean() const { return gap.MeanSince({}); }
  std::optional<double> GapMax() const { return gap.count > 0 ? std::optional(gap_max) : std::nullopt; }
};

// Returns the sum over all present and former workers of all shards, with the outcomes at shard 0.
PushTotals TotalPushes(const v1::JobStatus& status);
// Returns the sum over the workers of a shard.
PushTotals TotalPushes(const v1::ShardReport& shard);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_PUSH_TOTALS_H_
