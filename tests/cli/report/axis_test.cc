#include "cli/report/chart.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;

TEST(Axis, ValuesLieOnTheLineBetweenItsPixels) {
  const Axis down(10, 20, 200, 100);
  EXPECT_DOUBLE_EQ(down.At(10), 200);
  EXPECT_DOUBLE_EQ(down.At(15), 150);
}

TEST(Axis, EqualRatiosHaveEqualDistances) {
  const Axis workers(1, 100, 0, 200, true);
  EXPECT_DOUBLE_EQ(workers.At(1), 0);
  EXPECT_DOUBLE_EQ(workers.At(10), 100);
  EXPECT_DOUBLE_EQ(workers.At(100), 200);
}

TEST(Axis, TicksAreRoundAndWithinIt) {
  EXPECT_THAT(Axis(0, 23, 0, 1).Ticks(5), ElementsAre(0, 5, 10, 15, 20));
  EXPECT_THAT(Axis(0.913, 0.984, 0, 1).Ticks(4), ElementsAre(DoubleNear(0.92, 1e-9), DoubleNear(0.94, 1e-9),
                                                             DoubleNear(0.96, 1e-9), DoubleNear(0.98, 1e-9)));
}

TEST(Axis, LabelsHaveTheDigitsThatTheStepNeeds) {
  EXPECT_EQ(Axis(0, 120000, 0, 1).Label(40000, 5, Unit::kNumber), "40,000");
  EXPECT_EQ(Axis(0, 2, 0, 1).Label(0.5, 5, Unit::kNumber), "0.5");
  EXPECT_EQ(Axis(0.96, 0.98, 0, 1).Label(0.975, 5, Unit::kPercent), "97.5 %");
  const Axis share(0, 1, 0, 1);
  EXPECT_EQ(share.Label(share.Ticks(5).front(), 5, Unit::kPercent), "0 %") << "not -0 %";
  EXPECT_EQ(share.Label(0.4, 5, Unit::kPercent), "40 %");
}

TEST(RoundUp, IsTheNextTick) {
  EXPECT_DOUBLE_EQ(RoundUp(9.2, 5), 10);
  EXPECT_DOUBLE_EQ(RoundUp(10, 5), 10);
  EXPECT_DOUBLE_EQ(RoundUp(0, 5), 1);
}

}  // namespace
}  // namespace catchment
