#include "cli/report/report.h"
#include "gtest/gtest.h"
#include "tests/cli/report/made_comparison.h"

namespace catchment {
namespace {

// One run rises from 0 to 80 % in 8 seconds, the other to 60 % in 10: after 5 seconds they are at 50 % and 30
// %.
TEST(AccuracyOver, MeanAndBand) {
  const RunResult fast = MadeRun("a", 1, 1, 8, 0.8);
  const RunResult slow = MadeRun("a", 1, 2, 10, 0.6);
  const std::vector<CurvePoint> curve = AccuracyOver(&TestScore::seconds, {&fast, &slow});
  ASSERT_FALSE(curve.empty());
  const CurvePoint& middle = curve[curve.size() / 2];
  EXPECT_NEAR(middle.x, 5, 1e-9);
  EXPECT_NEAR(middle.high, 0.5, 1e-9);
  EXPECT_NEAR(middle.low, 0.3, 1e-9);
  EXPECT_NEAR(middle.y, 0.4, 1e-9);
  EXPECT_NEAR(curve.back().x, 10, 1e-9);
  EXPECT_NEAR(curve.back().high, 0.8, 1e-9) << "the fast one stays where it ended";
}

TEST(AccuracyOver, BeginsWhereAllHaveAScore) {
  const RunResult early = MadeRun("a", 1, 1, 8, 0.8);
  RunResult late = MadeRun("a", 1, 2, 8, 0.8);
  late.scores.front().seconds = 3;
  EXPECT_NEAR(AccuracyOver(&TestScore::seconds, {&early, &late}).front().x, 3, 1e-9);
}

TEST(AccuracyOver, WithoutScoresThereIsNoCurve) {
  RunResult run = MadeRun("a", 1, 1, 8, 0.8);
  run.scores.clear();
  EXPECT_TRUE(AccuracyOver(&TestScore::samples, {&run}).empty());
  EXPECT_TRUE(AccuracyOver(&TestScore::samples, {}).empty());
}

}  // namespace
}  // namespace catchment
