#include "cli/report/statistics.h"

#include <cmath>

#include "gtest/gtest.h"

namespace catchment {
namespace {

// The values of textbooks; those for 2.5 degrees of freedom were computed by integrating the density with
// Simpson's rule.
TEST(StudentT, QuantilesOfTheTable) {
  EXPECT_NEAR(StudentTQuantile(0.95, 1), 12.7062, 1e-4);
  EXPECT_NEAR(StudentTQuantile(0.95, 2), 4.30265, 1e-5);
  EXPECT_NEAR(StudentTQuantile(0.95, 2.5), 3.57465, 1e-4);
  EXPECT_NEAR(StudentTQuantile(0.95, 4), 2.77645, 1e-5);
  EXPECT_NEAR(StudentTQuantile(0.95, 30), 2.04227, 1e-5);
  EXPECT_NEAR(StudentTQuantile(0.95, 1e6), 1.95997, 1e-4);
  EXPECT_NEAR(StudentTQuantile(0.99, 4), 4.60409, 1e-5);
}

TEST(StudentT, OneDegreeIsCauchy) {
  for (double t : {-2.0, -0.1, 0.0, 0.5, 3.0}) {
    EXPECT_NEAR(StudentTCdf(t, 1), 0.5 + std::atan(t) / M_PI, 1e-10) << t;
  }
}

TEST(SpreadOf, MeanAndEnds) {
  const Spread spread = SpreadOf(std::vector<double>{3, 1, 5});
  EXPECT_EQ(spread.n, 3);
  EXPECT_EQ(spread.mean, 3);
  EXPECT_EQ(spread.low, 1);
  EXPECT_EQ(spread.high, 5);
  EXPECT_EQ(SpreadOf(BySeed()).n, 0);
}

// Logarithms of the ratios 4, 5 and 6: variance 1, so the standard error is sqrt(1/3), with 2 degrees of
// freedom: 4.30265 * 0.57735 = 2.48414 on each side of 5.
TEST(RatioOf, IntervalByHand) {
  const Ratio ratio = RatioOf({{1, std::exp(5)}, {2, std::exp(7)}, {3, std::exp(6)}},
                              {{1, std::exp(1)}, {2, std::exp(2)}, {3, 1}});
  EXPECT_NEAR(std::log(ratio.value), 5, 1e-9);
  EXPECT_NEAR(std::log(ratio.low), 5 - 2.48414, 1e-4);
  EXPECT_NEAR(std::log(ratio.high), 5 + 2.48414, 1e-4);
  EXPECT_TRUE(ratio.beyond_noise());
}

TEST(RatioOf, TheLevelIsCorrectedForThePairsThatTheTwoWereChosenFrom) {
  const BySeed a = {{1, std::exp(5)}, {2, std::exp(7)}, {3, std::exp(6)}};
  const BySeed b = {{1, std::exp(1)}, {2, std::exp(1)}, {3, std::exp(1)}};
  const double half = std::log(RatioOf(a, b).high / RatioOf(a, b).value);
  const double corrected = std::log(RatioOf(a, b, 5).high / RatioOf(a, b, 5).value);
  EXPECT_NEAR(half / StudentTQuantile(0.95, 2), corrected / StudentTQuantile(0.99, 2), 1e-9);
  EXPECT_GT(corrected, 2 * half);
  EXPECT_DOUBLE_EQ(RatioOf(a, b, 5).value, RatioOf(a, b).value);
}

TEST(RatioOf, EffectsOfASeedOnBothAreNotNoise) {
  const Ratio ratio = RatioOf({{1, 2}, {2, 20}, {3, 200}}, {{1, 1}, {2, 10.1}, {3, 99}});
  EXPECT_NEAR(ratio.value, 2, 0.01);
  EXPECT_TRUE(ratio.beyond_noise());
}

TEST(RatioOf, ADifferenceOfEitherSignIsNoise) {
  EXPECT_FALSE(RatioOf({{1, 2}, {2, 1}, {3, 2}}, {{1, 1}, {2, 2}, {3, 1}}).beyond_noise());
}

TEST(RatioOf, SeedsThatOnlyOneHasAreLeftOut) {
  const Ratio ratio = RatioOf({{1, 4}, {2, 8}, {4, 1000}}, {{1, 2}, {2, 4}, {3, 1000}});
  EXPECT_NEAR(ratio.value, 2, 1e-12);
  EXPECT_FALSE(RatioOf({{1, 2}}, {{2, 1}}).has_interval);
}

TEST(RatioOf, TheOtherWayRoundIsItsInverse) {
  const BySeed a = {{1, 2}, {2, 3}, {3, 4}};
  const BySeed b = {{1, 5}, {2, 7}, {3, 6}};
  EXPECT_NEAR(RatioOf(a, b).value * RatioOf(b, a).value, 1, 1e-12);
  EXPECT_NEAR(RatioOf(a, b).low * RatioOf(b, a).high, 1, 1e-12);
}

TEST(RatioOf, OneSeedTellsNothing) {
  const Ratio ratio = RatioOf({{1, 8}}, {{1, 2}});
  EXPECT_DOUBLE_EQ(ratio.value, 4);
  EXPECT_FALSE(ratio.has_interval);
  EXPECT_FALSE(ratio.beyond_noise());
}

}  // namespace
}  // namespace catchment
