#include "common/base/latency_histogram.h"

#include <gtest/gtest.h>

#include <limits>
#include <map>

namespace catchment {
namespace {

std::map<uint64_t, uint64_t> Entries(const LatencyHistogram& histogram) {
  std::map<uint64_t, uint64_t> entries;
  histogram.ForEach(
      [&](uint64_t us, uint64_t count) { EXPECT_TRUE(entries.emplace(us, count).second) << us; });
  return entries;
}

TEST(LatencyHistogramTest, IsEmptyAtFirst) {
  const LatencyHistogram histogram;
  EXPECT_TRUE(Entries(histogram).empty());
  EXPECT_EQ(histogram.count(), 0u);
  EXPECT_EQ(histogram.Quantile(0.5), 0);
}

TEST(LatencyHistogramTest, ReportsEverythingToWithinTenPercent) {
  for (double us = 8; us < 4e9; us *= 1.01) {
    LatencyHistogram histogram;
    histogram.Add(us);
    ASSERT_NEAR(histogram.Quantile(1), us, 0.1 * us);
    ASSERT_EQ(Entries(histogram).size(), 1u);
    // Small whole numbers add their rounding.
    ASSERT_NEAR(static_cast<double>(Entries(histogram).begin()->first), us, 0.1 * us + 0.5);
  }
}

TEST(LatencyHistogramTest, WhatIsOutsideCountsAsTheNearest) {
  LatencyHistogram histogram;
  for (double us : {-1.0, 0.0, 0.5, 8.0}) histogram.Add(us);
  for (double us : {4.2e9, 1e15, std::numeric_limits<double>::infinity()}) histogram.Add(us);
  const auto entries = Entries(histogram);
  ASSERT_EQ(entries.size(), 2u);
  EXPECT_EQ(entries.begin()->second, 4u);
  EXPECT_EQ(entries.rbegin()->second, 3u);
}

TEST(LatencyHistogramTest, QuantilesAreThoseOfWhatWasCounted) {
  LatencyHistogram histogram;
  histogram.Add(100, 98);
  histogram.Add(1000);
  histogram.Add(50000);
  EXPECT_EQ(histogram.count(), 100u);
  EXPECT_NEAR(histogram.Quantile(0.5), 100, 10);
  EXPECT_NEAR(histogram.Quantile(0.98), 100, 10);
  EXPECT_NEAR(histogram.Quantile(0.99), 1000, 100);
  EXPECT_NEAR(histogram.Quantile(0.999), 50000, 5000);
}

TEST(LatencyHistogramTest, ValuesOfOneFallIntoTheSameBucketsOfAnother) {
  LatencyHistogram histogram, copy;
  for (double us = 1; us < 1e10; us *= 1.07) histogram.Add(us);
  histogram.ForEach([&](uint64_t us, uint64_t count) { copy.Add(static_cast<double>(us), count); });
  EXPECT_EQ(Entries(copy), Entries(histogram));
}

}  // namespace
}  // namespace catchment
