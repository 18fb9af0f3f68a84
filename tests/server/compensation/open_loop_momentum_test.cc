#include "server/shard/open_loop_momentum.h"

#include <gtest/gtest.h>

#include <cmath>

namespace catchment {
namespace {

v1::OpenLoopMomentum Config(float least, float correction, float averaging) {
  v1::OpenLoopMomentum config;
  config.set_min_momentum(least);
  config.set_rate_correction(correction);
  config.set_averaging(averaging);
  return config;
}

MomentumControl::Setting SetTimes(MomentumControl* control, double tau, int times) {
  MomentumControl::Setting setting;
  for (int i = 0; i < times; ++i) setting = control->Set({.tau = tau});
  return setting;
}

TEST(OpenLoopMomentum, LeavesALoneWorkersMomentum) {
  OpenLoopMomentum control(0.9f, Config(0, 0.5f, 0.01f));
  const auto setting = SetTimes(&control, 0, 100);
  EXPECT_EQ(setting.momentum, 0.9f);
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
    EXPECT_NEAR(setting.momentum, row.momentum, 1e-6) << row.tau;
    EXPECT_NEAR(setting.rate_factor, row.factor, 1e-5) << row.tau;
  }
}

TEST(OpenLoopMomentum, MayGoBelowZeroWhereAllowed) {
  OpenLoopMomentum control(0.5f, Config(-0.3f, 0, 1));
  EXPECT_NEAR(SetTimes(&control, 1, 1).momentum, 0, 1e-6);
  EXPECT_NEAR(SetTimes(&control, 2, 1).momentum, 0.5 - 2.0 / 3, 1e-6);
  EXPECT_NEAR(SetTimes(&control, 100, 1).momentum, -0.3, 1e-6);
}

TEST(OpenLoopMomentum, RateCorrectionIsAnExponent) {
  for (const double c : {0.0, 1.0}) {
    OpenLoopMomentum control(0.9f, Config(0, static_cast<float>(c), 1));
    EXPECT_NEAR(SetTimes(&control, 1, 1).rate_factor, std::pow(6, c), 1e-5);
    EXPECT_NEAR(control.state().rate_factor(), std::pow(6, c), 1e-5);
  }
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
