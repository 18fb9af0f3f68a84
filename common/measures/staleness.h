// The distribution of the staleness of pushes.
//
// Units: versions. Threads: not thread-safe.
#ifndef CATCHMENT_COMMON_MEASURES_STALENESS_H_
#define CATCHMENT_COMMON_MEASURES_STALENESS_H_

#include <cstdint>
#include <map>

#include "proto/wire.pb.h"

namespace catchment {

class StalenessDistribution {
 public:
  void Add(uint64_t value, uint64_t count);
  // Adds staleness_values and staleness_counts of the statistics.
  void Add(const v1::WorkerStatistics& statistics);
  // Changes the count of the value from `before` to `after` for one source.
  void Replace(uint64_t value, uint64_t before, uint64_t after);

  uint64_t count() const { return count_; }
  // Returns the number of pushes with each staleness.
  const std::map<uint64_t, uint64_t>& counts() const { return counts_; }
  // All of these are 0 if nothing was counted.
  double mean() const;
  // Returns the smallest value that at least the fraction `share`, in (0, 1], of all values is at or below.
  double quantile(double share) const;
  double max() const;

 private:
  std::map<uint64_t, uint64_t> counts_;
  uint64_t count_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_STALENESS_H_
