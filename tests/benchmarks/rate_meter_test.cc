#include "tests/benchmarks/rate_meter.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr double kPoll = 0.02;
constexpr double kInterval = 0.1;

// Workers that add one every `period` seconds, each at a different time within the period; the count is
// renewed every 0.1 s and read every 0.02 s.
double Measured(const std::vector<double>& moments, double period, int steps) {
  RateMeter meter(static_cast<int>(moments.size()), steps, kInterval);
  const auto count_at = [&](double time) {
    uint64_t count = 0;
    for (const double moment : moments) {
      if (time >= moment) count += static_cast<uint64_t>((time - moment) / period) + 1;
    }
    return count;
  };
  for (double time = 3.3; !meter.enough(); time += kPoll) {
    meter.Add(time, count_at(std::floor(time / kInterval) * kInterval));
  }
  return meter.per_second();
}

TEST(RateMeter, CountsOneWorker) {
  EXPECT_NEAR(Measured({0}, 0.1007, 20), 1 / 0.1007, 0.01 / 0.1007);
  EXPECT_NEAR(Measured({0}, 1.013, 3), 1 / 1.013, 0.02 / 1.013);
}

TEST(RateMeter, CountsWorkersWhoseStepsLieTogether) {
  std::vector<double> moments;
  for (int i = 0; i < 60; ++i) moments.push_back(0.005 * i);
  // There are additions only in the first 0.3 s of 5 s.
  EXPECT_NEAR(Measured(moments, 5.03, 1), 60 / 5.03, 0.01 * 60 / 5.03);
}

TEST(RateMeter, CountsWorkersWhoseStepsLieApart) {
  std::vector<double> moments;
  for (int i = 0; i < 60; ++i) moments.push_back(5.03 / 60 * i);
  EXPECT_NEAR(Measured(moments, 5.03, 1), 60 / 5.03, 0.01 * 60 / 5.03);
}

TEST(RateMeter, CountsGroupsThatAddAllAtOnce) {
  EXPECT_NEAR(Measured(std::vector<double>(60, 0.7), 0.115, 20), 60 / 0.115, 0.02 * 60 / 0.115);
}

// Between two bursts nothing is added, though the count is only read after the second has begun.
TEST(RateMeter, CountsAnAdditionAfterAPauseFromTheReadingBefore) {
  RateMeter meter(3, 1, kInterval);
  for (const auto& [time, count] :
       std::vector<std::pair<double, uint64_t>>{{0, 0}, {10, 3}, {20, 5}, {20.1, 6}, {29.9, 6}, {30, 9}}) {
    meter.Add(time, count);
  }
  ASSERT_TRUE(meter.enough());
  const double seconds = ((20.1 - 10) + (29.9 + 0.1 * 2 / 3 - 20) + (30 - 20.1)) / 3;
  EXPECT_NEAR(meter.per_second(), 3 / seconds, 1e-9);
}

TEST(RateMeter, BeginsWithTheFirstChangeAndNeedsTwiceItsSpan) {
  RateMeter meter(2, 1, kInterval);
  meter.Add(0, 100);
  meter.Add(7, 100);
  meter.Add(10, 102);
  meter.Add(11, 104);
  EXPECT_FALSE(meter.enough());
  meter.Add(12, 106);
  ASSERT_TRUE(meter.enough());
  EXPECT_DOUBLE_EQ(meter.per_second(), 2);
}

}  // namespace
}  // namespace catchment
