#include "common/job/learning_rate.h"

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
