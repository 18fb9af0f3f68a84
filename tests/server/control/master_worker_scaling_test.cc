#include <gtest/gtest.h>

#include <cmath>

#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

TEST(WorkerScalingTest, FollowsTheWorkersInTraining) {
  EXPECT_EQ(WorkerScale(v1::Optimizer::NO_SCALING, 2, 8), 1);
  EXPECT_EQ(WorkerScale(v1::Optimizer::LINEAR, 2, 8), 0.25);
  EXPECT_EQ(WorkerScale(v1::Optimizer::LINEAR, 16, 8), 2);
  EXPECT_EQ(WorkerScale(v1::Optimizer::SQUARE_ROOT, 2, 8), 0.5);
  EXPECT_EQ(WorkerScale(v1::Optimizer::LINEAR, 32, 8), 2) << "at most twice the job's workers count";
  EXPECT_EQ(WorkerScale(v1::Optimizer::SQUARE_ROOT, 16, 8), std::sqrt(2));
  EXPECT_EQ(WorkerScale(v1::Optimizer::SQUARE_ROOT, 32, 8), std::sqrt(2));
}

TEST(WorkerScalingTest, WhatTheLastWorkersLeaveBehindCountsAsOfOne) {
  EXPECT_EQ(WorkerScale(v1::Optimizer::LINEAR, 0, 4), 0.25);
}

}  // namespace
}  // namespace catchment
