#include "server/rules/open_loop_momentum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <utility>

namespace catchment {
namespace {

v1::Compensation Config(float least, float correction, float averaging) {
  v1::Compensation compensation;
  v1::OpenLoopMomentum* const config = compensation.mutable_open_loop_momentum();
  config->set_min_momentum(least);
  config->set_rate_correction(correction);
  config->set_averaging(averaging);
  return compensation;
}

v1::Compensation Bounded(float correction, float bound) {
  v1::Compensation compensation = Config(0, correction, 1);
  compensation.set_step_bound(bound);
  return compensation;
}

MomentumControl::Setting SetTimes(MomentumControl* control, double tau, int times) {
  MomentumControl::Setting setting;
  for (int i = 0; i < times; ++i) setting = control->Set({.tau = tau});
  return setting;
}

TEST(OpenLoopMomentum, LeavesALoneWorkersMomentum) {
  OpenLoopMomentum control(0.9f, Config(0, 0.5f, 0.01f));
  const auto setting = SetTimes(&control, 0, 100);
  EXPECT_EQ(*setting.momentum, 0.9f);
  EXPECT_EQ(setting.rate_factor, 1);
}

TEST(OpenLoopMomentum, TakesOffWhatAsynchronyAdds) {
  // tau 1 adds 1/2, tau 3 adds 3/4: of 0.9 there stay 0.4 and 0.15; of 15/16 nothing may go below 0.
  struct Row {
    double tau, momentum, factor;
  };
  for (const Row& row : {Row{1, 0.4, std::sqrt(0.6 / 0.1)}, Row{3, 0.15, std::sqrt(0.85 / 0.1)},
                         Row{15, 0, std::sqrt(1 / 0.1)}}) {
    OpenLoopMomentum control(0.9f, Config(0, 0.5f, 0.01f));
    const auto setting = SetTimes(&control, row.tau, 1);
    EXPECT_NEAR(*setting.momentum, row.momentum, 1e-6) << row.tau;
    EXPECT_NEAR(setting.rate_factor, row.factor, 1e-5) << row.tau;
  }
}

TEST(OpenLoopMomentum, MayGoBelowZeroWhereAllowed) {
  OpenLoopMomentum control(0.5f, Config(-0.3f, 0, 1));
  EXPECT_NEAR(*SetTimes(&control, 1, 1).momentum, 0, 1e-6);
  EXPECT_NEAR(*SetTimes(&control, 2, 1).momentum, 0.5 - 2.0 / 3, 1e-6);
  EXPECT_NEAR(*SetTimes(&control, 100, 1).momentum, -0.3, 1e-6);
}

TEST(OpenLoopMomentum, RateCorrectionIsAnExponent) {
  for (const double c : {0.0, 1.0}) {
    OpenLoopMomentum control(0.9f, Config(0, static_cast<float>(c), 1));
    EXPECT_NEAR(SetTimes(&control, 1, 1).rate_factor, std::pow(6, c), 1e-5);
    EXPECT_NEAR(control.state().rate_factor(), std::pow(6, c), 1e-5);
  }
}

TEST(OpenLoopMomentum, DelayBoundsTheStep) {
  // momentum 3/4, r 1: wanted are 4 (1 - mu), and c / (1/4 (1 + tau)) = 6 / (1 + tau) is allowed.
  OpenLoopMomentum control(0.75f, Bounded(1, 1.5f));
  EXPECT_NEAR(SetTimes(&control, 0, 1).rate_factor, 1, 1e-6);
  EXPECT_NEAR(SetTimes(&control, 1, 1).rate_factor, 3, 1e-6);     // both: mu is 1/4
  EXPECT_NEAR(SetTimes(&control, 2, 1).rate_factor, 2, 1e-6);     // and not 4 (1 - 1/12)
  EXPECT_NEAR(SetTimes(&control, 11, 1).rate_factor, 0.5, 1e-6);  // below 1
  EXPECT_NEAR(control.state().rate_factor(), 0.5, 1e-6);
  EXPECT_NEAR(SetTimes(&control, 59, 1).rate_factor, 0.1, 1e-6);
}

TEST(OpenLoopMomentum, BoundFollowsTheMeanAndNotTheLastOne) {
  v1::Compensation compensation = Config(0, 0, 0.25f);
  compensation.set_step_bound(1);
  OpenLoopMomentum control(0.5f, compensation);
  SetTimes(&control, 3, 1);
  EXPECT_NEAR(SetTimes(&control, 19, 1).rate_factor, 2.0 / (1 + 7), 1e-6);
}

TEST(OpenLoopMomentum, AveragesTheStaleness) {
  OpenLoopMomentum control(0.9f, Config(-0.9f, 0, 0.25f));
  SetTimes(&control, 4, 1);  // the first one counts in full
  SetTimes(&control, 0, 1);
  EXPECT_DOUBLE_EQ(control.state().staleness_mean(), 3);
  SetTimes(&control, 1, 1);
  EXPECT_DOUBLE_EQ(control.state().staleness_mean(), 2.5);
  EXPECT_NEAR(control.state().momentum(), 0.9 - 2.5 / 3.5, 1e-6);
}

TEST(StepBound, StandsAloneWithoutMomentum) {
  v1::Job job;
  EXPECT_EQ(MakeMomentumControl(job, 1), nullptr);
  job.mutable_optimizer()->set_momentum(0.9f);  // is not lowered, so it does not raise the bound
  job.mutable_algorithm()->mutable_compensation()->set_step_bound(3);
  const auto control = MakeMomentumControl(job, 1);
  ASSERT_NE(control, nullptr);
  EXPECT_FALSE(control->state().has_rate_factor());
  for (const auto& [tau, factor] : {std::pair<uint64_t, double>{2, 1}, {62, 3.0 / 9}}) {
    const MomentumControl::Setting setting = SetTimes(control.get(), tau, 1);
    EXPECT_FALSE(setting.momentum.has_value());
    EXPECT_NEAR(setting.rate_factor, factor, 1e-6) << tau;  // averaging 0.1: of 2 and 62 the mean is 8
  }
  EXPECT_NEAR(control->state().staleness_mean(), 8, 1e-9);
  EXPECT_FALSE(control->state().has_momentum());
  const auto resumed = MakeMomentumControl(job, 1);
  resumed->Restore(control->state());
  EXPECT_EQ(resumed->state().rate_factor(), control->state().rate_factor());
  EXPECT_EQ(SetTimes(resumed.get(), 5, 1).rate_factor, SetTimes(control.get(), 5, 1).rate_factor);
}

TEST(OpenLoopMomentum, GoesOnAfterARestart) {
  OpenLoopMomentum control(0.9f, Config(0, 0.5f, 0.1f)), next(0.9f, Config(0, 0.5f, 0.1f));
  EXPECT_FALSE(control.state().has_staleness_mean());
  next.Restore(control.state());
  EXPECT_EQ(SetTimes(&next, 2, 1).momentum, SetTimes(&control, 2, 1).momentum);
  SetTimes(&control, 6, 3);
  OpenLoopMomentum resumed(0.9f, Config(0, 0.5f, 0.1f));
  resumed.Restore(control.state());
  EXPECT_EQ(SetTimes(&resumed, 1, 1).momentum, SetTimes(&control, 1, 1).momentum);
}

}  // namespace
}  // namespace catchment
