// How stale pushes were: the distribution of counted whole numbers.
//
// Units: versions. Threads: not thread-safe.
#ifndef CATCHMENT_COMMON_STALENESS_H_
#define CATCHMENT_COMMON_STALENESS_H_

#include <cstdint>
#include <map>

#include "proto/wire.pb.h"

namespace catchment {

class StalenessDistribution {
 public:
  void Add(uint64_t value, uint64_t count);
  // Its staleness_values and staleness_counts.
  void Add(const v1::WorkerStatistics& statistics);
  // Counts the value `after` times where it was counted `before` times.
  void Replace(uint64_t value, uint64_t before, uint64_t after);

  uint64_t count() const { return count_; }
  // All are 0 when nothing was counted.
  double mean() const;
  // The smallest value that at least this share of all is at or below; share in (0, 1].
  double quantile(double share) const;
  double max() const;

 private:
  std::map<uint64_t, uint64_t> counts_;
  uint64_t count_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_STALENESS_H_
