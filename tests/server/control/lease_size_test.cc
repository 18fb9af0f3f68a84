#include <gtest/gtest.h>

#include "server/control/lease_ledger.h"

namespace catchment {
namespace {

v1::Progress Progress(uint64_t steps, double seconds) {
  v1::Progress progress;
  progress.set_steps(steps);
  // However the time is spent.
  progress.set_compute_seconds(seconds / 2);
  progress.set_push_seconds(seconds / 4);
  progress.set_pull_seconds(seconds / 8);
  progress.set_data_seconds(seconds / 8);
  return progress;
}

TEST(LeaseSizeTest, IsASecondOfSteps) {
  EXPECT_EQ(LeaseSize(Progress(64, 2), 1), 32u);
  EXPECT_EQ(LeaseSize(Progress(64, 2), 100), 32u);
}

TEST(LeaseSizeTest, ManyWorkersAskForAHundredLeasesASecond) {
  EXPECT_EQ(LeaseSize(Progress(64, 2), 500), 5 * 32u);
  EXPECT_EQ(LeaseSize(Progress(64, 64), 2000), 20u);
}

TEST(LeaseSizeTest, HasAFewMinibatchesWhereNothingIsKnown) {
  EXPECT_EQ(LeaseSize(Progress(0, 0), 2000), kMinibatchesPerLease);
  EXPECT_EQ(LeaseSize(Progress(0, 3), 2000), kMinibatchesPerLease) << "it waits for its first minibatch";
  EXPECT_EQ(LeaseSize(Progress(5, 0), 2000), kMinibatchesPerLease);
}

TEST(LeaseSizeTest, IsBounded) {
  EXPECT_EQ(LeaseSize(Progress(2, 2000), 1), kMinibatchesPerLease);
  EXPECT_EQ(LeaseSize(Progress(1'000'000'000, 1e-9), 2000), kMaxPerLease);
  EXPECT_EQ(LeaseSize(Progress(UINT64_MAX, 1e-300), 1'000'000), kMaxPerLease);
}

TEST(LocalStepsTest, FollowTheSpeed) {
  EXPECT_EQ(LocalSteps(16, 10, 10), 16u);
  EXPECT_EQ(LocalSteps(16, 2.5, 10), 4u);
  EXPECT_EQ(LocalSteps(16, 9.9, 10), 16u) << "speeds of equal machines differ a little";
  EXPECT_EQ(LocalSteps(16, 9.6, 10), 15u);
  EXPECT_EQ(LocalSteps(16, 0.1, 10), 1u);
  EXPECT_EQ(LocalSteps(16, 11, 10), 16u);
  EXPECT_EQ(LocalSteps(1, 1, 10), 1u);
}

TEST(LocalStepsTest, AreAllWhereASpeedIsNotKnown) {
  EXPECT_EQ(LocalSteps(16, 0, 10), 16u);
  EXPECT_EQ(LocalSteps(16, 0, 0), 16u);
}

TEST(LocalStepsTest, SpeedIsThatOfComputing) {
  EXPECT_EQ(StepsPerSecond(Progress(50, 8)), 10) << "of 4 s of computing and 1 s of loading";
  EXPECT_EQ(StepsPerSecond(Progress(0, 8)), 0);
  EXPECT_EQ(StepsPerSecond(Progress(3, 0)), 0);
}

}  // namespace
}  // namespace catchment
