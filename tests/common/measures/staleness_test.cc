#include "common/measures/staleness.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

TEST(StalenessDistributionTest, IsZeroWithoutPushes) {
  StalenessDistribution staleness;
  EXPECT_EQ(staleness.mean(), 0);
  EXPECT_EQ(staleness.quantile(0.5), 0);
  EXPECT_EQ(staleness.max(), 0);
}

TEST(StalenessDistributionTest, AddsUpCountsOfSeveralShards) {
  v1::WorkerStatistics statistics;
  for (uint64_t value : {0, 1, 2}) statistics.add_staleness_values(value);
  for (uint64_t count : {40, 9, 1}) statistics.add_staleness_counts(count);
  StalenessDistribution staleness;
  staleness.Add(statistics);
  staleness.Add(statistics);
  EXPECT_EQ(staleness.count(), 100u);
  EXPECT_DOUBLE_EQ(staleness.mean(), 0.22);
  EXPECT_EQ(staleness.quantile(0.5), 0);
  EXPECT_EQ(staleness.quantile(0.8), 0);
  EXPECT_EQ(staleness.quantile(0.81), 1);
  EXPECT_EQ(staleness.quantile(0.99), 2);
  EXPECT_EQ(staleness.max(), 2);
}

}  // namespace
}  // namespace catchment
