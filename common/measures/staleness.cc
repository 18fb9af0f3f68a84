#include "common/measures/staleness.h"

#include <glog/logging.h>

#include <algorithm>

namespace catchment {

void StalenessDistribution::Add(uint64_t value, uint64_t count) {
  if (count == 0) return;
  counts_[value] += count;
  count_ += count;
}

void StalenessDistribution::Replace(uint64_t value, uint64_t before, uint64_t after) {
  if (before == after) return;
  const auto entry = counts_.try_emplace(value, 0).first;
  CHECK_GE(entry->second, before) << "more is removed than was added";
  entry->second += after - before;
  if (entry->second == 0) counts_.erase(entry);
  count_ += after - before;
}

void StalenessDistribution::Add(const v1::WorkerStatistics& statistics) {
  const int entries = std::min(statistics.staleness_values_size(), statistics.staleness_counts_size());
  for (int i = 0; i < entries; ++i) Add(statistics.staleness_values(i), statistics.staleness_counts(i));
}

double StalenessDistribution::mean() const {
  if (count_ == 0) return 0;
  double sum = 0;
  for (const auto& [value, count] : counts_) sum += static_cast<double>(value) * static_cast<double>(count);
  return sum / static_cast<double>(count_);
}

double StalenessDistribution::quantile(double share) const {
  const double wanted = share * static_cast<double>(count_);
  uint64_t seen = 0;
  for (const auto& [value, count] : counts_) {
    seen += count;
    if (static_cast<double>(seen) >= wanted) return static_cast<double>(value);
  }
  return max();
}

double StalenessDistribution::max() const {
  return counts_.empty() ? 0 : static_cast<double>(counts_.rbegin()->first);
}

}  // namespace catchment
