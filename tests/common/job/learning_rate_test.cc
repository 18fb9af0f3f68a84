#include "common/job/learning_rate.h"

#include <cmath>
#include <limits>

#include "gtest/gtest.h"

namespace catchment {
namespace {

v1::Optimizer Make(v1::Schedule::Decay decay, float warmup, float final_fraction) {
  v1::Optimizer optimizer;
  optimizer.set_learning_rate(2);
  optimizer.mutable_schedule()->set_decay(decay);
  optimizer.mutable_schedule()->set_warmup(warmup);
  optimizer.mutable_schedule()->set_final_fraction(final_fraction);
  return optimizer;
}

TEST(LearningRate, ConstantStays) {
  const v1::Optimizer optimizer = Make(v1::Schedule::CONSTANT, 0, 0);
  for (double progress : {0.0, 0.3, 1.0}) EXPECT_EQ(LearningRate(optimizer, progress), 2) << progress;
}

TEST(LearningRate, CosineFallsFromAllToTheFinalFraction) {
  const v1::Optimizer to_zero = Make(v1::Schedule::COSINE, 0, 0);
  EXPECT_DOUBLE_EQ(LearningRate(to_zero, 0), 2);
  EXPECT_NEAR(LearningRate(to_zero, 1.0 / 3), 1.5, 1e-12);  // cos 60 degrees = 1/2
  EXPECT_NEAR(LearningRate(to_zero, 0.5), 1, 1e-12);
  EXPECT_NEAR(LearningRate(to_zero, 1), 0, 1e-12);
  const v1::Optimizer to_tenth = Make(v1::Schedule::COSINE, 0, 0.25f);
  EXPECT_NEAR(LearningRate(to_tenth, 0.5), 1.25, 1e-12);
  EXPECT_NEAR(LearningRate(to_tenth, 1), 0.5, 1e-12);
}

TEST(LearningRate, StepFallsAtEachShareOfTheBudget) {
  v1::Optimizer optimizer = Make(v1::Schedule::STEP, 0, 0);
  optimizer.mutable_schedule()->set_factor(0.5f);
  optimizer.mutable_schedule()->set_step_every(0.1f);
  EXPECT_EQ(LearningRate(optimizer, 0), 2);
  EXPECT_EQ(LearningRate(optimizer, 0.099), 2);
  // As a float, 0.1 is a little more.
  for (int tenth = 1; tenth <= 10; ++tenth) {
    EXPECT_EQ(LearningRate(optimizer, tenth / 10.0), 2 * std::pow(0.5, tenth)) << tenth;
  }
  optimizer.mutable_schedule()->set_step_every(1);
  EXPECT_EQ(LearningRate(optimizer, 0.99), 2);
  // A millionth of a step is allowed for that.
  optimizer.mutable_schedule()->set_step_every(0.25f);
  EXPECT_EQ(LearningRate(optimizer, 0.25 * (1 - 0.9e-6)), 1);
  EXPECT_EQ(LearningRate(optimizer, 0.25 * (1 - 1.1e-6)), 2);
}

TEST(LearningRate, ExponentialFallsByTheSameFactorInEqualShares) {
  const v1::Optimizer optimizer = Make(v1::Schedule::EXPONENTIAL, 0, 0.0625f);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0), 2);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.25), 1);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 1), 0.125);
}

TEST(LearningRate, PolynomialFallsToTheFinalFraction) {
  v1::Optimizer optimizer = Make(v1::Schedule::POLYNOMIAL, 0, 0.25f);
  optimizer.mutable_schedule()->set_power(1);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0), 2);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.5), 1.25);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 1), 0.5);
  optimizer.mutable_schedule()->set_power(2);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.5), 2 * (0.25 + 0.75 * 0.25));
}

TEST(LearningRate, OneCycleRisesToThePeakAndFalls) {
  v1::Optimizer optimizer = Make(v1::Schedule::ONE_CYCLE, 0, 0.125f);
  optimizer.mutable_schedule()->set_pct_start(0.25f);
  optimizer.mutable_schedule()->set_initial_lr_fraction(0.5f);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0), 1);
  EXPECT_NEAR(LearningRate(optimizer, 0.125), 1.5, 1e-12);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.25), 2);
  EXPECT_NEAR(LearningRate(optimizer, 0.5), 2 * (0.125 + 0.875 * 0.75), 1e-12);  // cos 60 degrees = 1/2
  EXPECT_NEAR(LearningRate(optimizer, 1), 0.25, 1e-12);
}

TEST(LearningRate, WarmupEndsWhereTheDecayBegins) {
  v1::Optimizer optimizer = Make(v1::Schedule::ONE_CYCLE, 0.5f, 0);
  optimizer.mutable_schedule()->set_pct_start(0.5f);
  optimizer.mutable_schedule()->set_initial_lr_fraction(0.25f);
  EXPECT_EQ(LearningRate(optimizer, 0), 0);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.25), 0.25);
  EXPECT_NEAR(LearningRate(optimizer, 0.4999999), 0.5, 1e-6);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.5), 0.5);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.75), 2);
}

TEST(LearningRate, WarmupRisesLinearlyAndTheDecayTakesTheRest) {
  const v1::Optimizer optimizer = Make(v1::Schedule::COSINE, 0.25f, 0);
  EXPECT_EQ(LearningRate(optimizer, 0), 0);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.125), 1);
  EXPECT_DOUBLE_EQ(LearningRate(optimizer, 0.25), 2);
  EXPECT_NEAR(LearningRate(optimizer, 0.625), 1, 1e-12);
  EXPECT_EQ(LearningRate(Make(v1::Schedule::CONSTANT, 0.5f, 0), 0.75), 2);
}

TEST(LearningRate, ProgressIsHeldWithinZeroAndOne) {
  const v1::Optimizer optimizer = Make(v1::Schedule::COSINE, 0, 0.5f);
  EXPECT_EQ(LearningRate(optimizer, -3), LearningRate(optimizer, 0));
  EXPECT_EQ(LearningRate(optimizer, 7), LearningRate(optimizer, 1));
  EXPECT_EQ(LearningRate(optimizer, std::numeric_limits<double>::infinity()), LearningRate(optimizer, 1));
  EXPECT_EQ(LearningRate(optimizer, std::numeric_limits<double>::quiet_NaN()), LearningRate(optimizer, 0));
}

}  // namespace
}  // namespace catchment
