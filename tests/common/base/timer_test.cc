#include "common/base/timer.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

TEST(SteadyTimer, SleepsUntilTheTimeHasComeAndNotWithinAPartOfItsTick) {
  SteadyTimer timer;
  for (const double seconds : {0.0, 1e-9, 1.3e-6, 0.00123456789}) {
    const double time = timer.Now() + seconds;
    timer.SleepUntil(time);
    EXPECT_GE(timer.Now(), time);
  }
}

TEST(SteadyTimer, ReturnsWhereTheTimeIsPast) {
  SteadyTimer timer;
  timer.SleepUntil(timer.Now() - 1000);
  timer.SleepUntil(-1);
}

TEST(SteadyTimer, HasTheSteadyClocksTime) {
  const SteadyTimer timer;
  const SteadyClock clock;
  const double before = clock.Now();
  const double between = timer.Now();
  EXPECT_GE(between, before);
  EXPECT_GE(clock.Now(), between);
}

}  // namespace
}  // namespace catchment
