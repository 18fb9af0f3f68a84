#include "common/base/random.h"

#include <cmath>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(Scatter, IsSplitMix64) {
  // The first outputs of SplitMix64 with seed 0, whose state grows by the golden ratio.
  EXPECT_EQ(Scatter(0), 0xe220a8397b1dcdafu);
  EXPECT_EQ(Scatter(0x9e3779b97f4a7c15u), 0x6e789e6aa1b965f4u);
  EXPECT_EQ(Scatter(2 * 0x9e3779b97f4a7c15u), 0x06c45d188009454fu);
}

TEST(Random, IsSplitMix64FromItsScatteredSeed) {
  Random random(0);
  EXPECT_EQ(random.Next(), 0xa706dd2f4d197e6fu);
  EXPECT_EQ(random.Next(), 0xb382a305f4414f5eu);
}

TEST(Random, StreamsOfNeighbouringSeedsShareNothing) {
  Random zero(0), one(1);
  zero.Next();
  for (int i = 0; i < 100; ++i) EXPECT_NE(zero.Next(), one.Next());
}

TEST(Random, SameSeedSameNumbers) {
  Random a(7), b(7);
  for (int i = 0; i < 100; ++i) EXPECT_EQ(a.Next(), b.Next());
}

TEST(Derive, StreamsOfCloseSeedsDiffer) {
  std::set<uint64_t> seen;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    for (uint64_t stream = 0; stream < 100; ++stream) seen.insert(Derive(seed, stream));
  }
  EXPECT_EQ(seen.size(), 10000u);
  EXPECT_NE(Derive(1, 2), Derive(2, 1));
}

// Pearson's statistic over 16 cells of 16,000 draws; above 37.7 once in a thousand seeds.
double ChiSquared(const std::vector<int>& counts, double expected) {
  double sum = 0;
  for (int count : counts) sum += (count - expected) * (count - expected) / expected;
  return sum;
}

TEST(Random, UniformStaysInRangeAndIsEven) {
  Random random(1);
  std::vector<int> counts(16);
  for (int i = 0; i < 16000; ++i) {
    const double value = random.Uniform();
    ASSERT_GE(value, 0);
    ASSERT_LT(value, 1);
    ++counts[static_cast<int>(value * 16)];
  }
  EXPECT_LT(ChiSquared(counts, 1000), 37.7);
}

// Neighbouring seeds are what Derive is handed: sample 0, 1, 2, ...
TEST(Random, FirstNumbersOfNeighbouringStreamsAreEven) {
  std::vector<int> counts(16);
  for (int i = 0; i < 16000; ++i) ++counts[Random(Derive(1, i)).Below(16)];
  EXPECT_LT(ChiSquared(counts, 1000), 37.7);
}

TEST(Random, UniformBetweenBoundsStaysThere) {
  Random random(2);
  for (int i = 0; i < 1000; ++i) {
    const double value = random.Uniform(-3, 5);
    EXPECT_GE(value, -3);
    EXPECT_LT(value, 5);
  }
}

TEST(Random, BelowReachesAllAndNoMore) {
  Random random(3);
  std::vector<int> counts(16);
  for (int i = 0; i < 16000; ++i) {
    const uint64_t value = random.Below(16);
    ASSERT_LT(value, 16u);
    ++counts[value];
  }
  EXPECT_LT(ChiSquared(counts, 1000), 37.7);
  EXPECT_EQ(random.Below(1), 0u);
}

TEST(Random, NormalHasItsMoments) {
  Random random(4);
  constexpr int kDraws = 100000;
  double sum = 0, squares = 0, fourth = 0;
  for (int i = 0; i < kDraws; ++i) {
    const double value = random.Normal();
    ASSERT_TRUE(std::isfinite(value));
    sum += value;
    squares += value * value;
    fourth += value * value * value * value;
  }
  EXPECT_NEAR(sum / kDraws, 0, 0.015);
  EXPECT_NEAR(squares / kDraws, 1, 0.02);
  EXPECT_NEAR(fourth / kDraws, 3, 0.15);
}

}  // namespace
}  // namespace catchment
