#include "server/rules/closed_loop_momentum.h"

#include <gtest/gtest.h>

#include <deque>
#include <utility>
#include <vector>

#include "common/base/random.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 50;
constexpr double kRate = 0.02;

v1::Compensation Config(float gain, float least = -0.9f) {
  v1::Compensation compensation;
  v1::ClosedLoopMomentum* const config = compensation.mutable_closed_loop_momentum();
  config->set_min_momentum(least);
  config->set_gain(gain);
  config->set_coordinates(16);
  return compensation;
}

// Momentum SGD on a quadratic with curvatures of its own for each coordinate; every gradient is `delay`
// versions old. The momentum is the control's, or, where it is given, always the same.
struct Quadratic {
  explicit Quadratic(MomentumControl* control, uint64_t delay) : control(*control), delay(delay) {
    Random random(7);
    for (int64_t i = 0; i < kValues; ++i) {
      curvature[i] = static_cast<float>(random.Uniform(0.5, 1.5));
      x[i] = static_cast<float>(random.Normal());
    }
  }
  void Step() {
    past.push_back(x);
    if (past.size() > delay + 1) past.pop_front();
    const uint64_t tau = past.size() - 1;
    std::vector<float> g(kValues);
    for (int64_t i = 0; i < kValues; ++i) g[i] = curvature[i] * past.front()[i];
    setting = control.Set({version - tau, static_cast<double>(tau), g.data(), static_cast<float>(kRate)});
    for (int64_t i = 0; i < kValues; ++i) {
      v[i] = *setting.momentum * v[i] + g[i];
      x[i] -= static_cast<float>(kRate) * setting.rate_factor * v[i];
    }
    control.Stepped(++version, x.data());
  }

  MomentumControl& control;
  const uint64_t delay;
  std::vector<float> curvature = std::vector<float>(kValues), x = curvature, v = curvature;
  std::deque<std::vector<float>> past;
  uint64_t version = 0;
  MomentumControl::Setting setting;
};

TEST(ClosedLoopMomentum, MeasuresTheOptimizersWhereNothingIsStale) {
  // With gain 0 the momentum stays what it is, and is all there is.
  ClosedLoopMomentum control(0.6f, Config(1e-30f), kValues);
  Quadratic quadratic(&control, 0);
  for (int i = 0; i < 100; ++i) quadratic.Step();
  EXPECT_NEAR(control.state().total_momentum(), 0.6, 0.01);
}

TEST(ClosedLoopMomentum, ShowsAnAverageOfWhatItReads) {
  // Without gradients a reading is the ratio of two steps: here 2, then 0.5.
  ClosedLoopMomentum control(0.9f, Config(1e-30f), 1);
  const float gradient[] = {0};
  const float x[] = {0, 1, 3, 4};  // at versions 1, 2, 3, 4
  const auto step_to = [&](uint64_t version) {
    control.Set({version - 1, 0, gradient, 0.1f});
    control.Stepped(version, &x[version - 1]);
  };
  for (uint64_t version = 1; version <= 3; ++version) step_to(version);
  EXPECT_NEAR(control.state().total_momentum(), 2, 1e-6);
  step_to(4);
  EXPECT_NEAR(control.state().total_momentum(), 2 + 0.02 * (0.5 - 2), 1e-6);
}

TEST(ClosedLoopMomentum, OneCoordinateDoesNotMoveTheMedian) {
  const std::vector<float> gradient(kValues), zero(kValues), one(kValues, 1.0f);
  for (int64_t outlier = 0; outlier < kValues; ++outlier) {
    ClosedLoopMomentum control(0.9f, Config(1e-30f), kValues);
    std::vector<float> last(kValues, 1.5f);  // after 0 and 1: a ratio of 0.5
    last[outlier] = 100;
    uint64_t version = 0;
    for (const std::vector<float>* x : {&zero, &one, &std::as_const(last)}) {
      control.Set({version, 0, gradient.data(), 0.1f});
      control.Stepped(++version, x->data());
    }
    EXPECT_NEAR(control.state().total_momentum(), 0.5, 1e-6) << "without coordinate " << outlier;
  }
}

TEST(ClosedLoopMomentum, ComesToItsTargetFromBelow) {
  ClosedLoopMomentum control(0.6f, Config(0.05f), kValues);
  v1::MomentumState low;
  low.set_momentum(0.1f);
  control.Restore(low);
  Quadratic quadratic(&control, 0);
  quadratic.Step();
  EXPECT_NEAR(*quadratic.setting.momentum, 0.1, 1e-6);
  for (int i = 0; i < 150; ++i) quadratic.Step();
  EXPECT_NEAR(*quadratic.setting.momentum, 0.6, 0.02);
  EXPECT_LE(*quadratic.setting.momentum, 0.6f);
}

TEST(ClosedLoopMomentum, TakesOffWhatDelayAdds) {
  // The same delayed steps, with and without: with a delay of 2 the total reads above the momentum that is
  // set.
  ClosedLoopMomentum open(0.5f, Config(1e-30f), kValues);
  Quadratic uncontrolled(&open, 2);
  for (int i = 0; i < 100; ++i) uncontrolled.Step();
  const double added = open.state().total_momentum() - 0.5;
  ASSERT_GT(added, 0.005);
  ClosedLoopMomentum closed(0.5f, Config(0.1f), kValues);
  Quadratic controlled(&closed, 2);
  for (int i = 0; i < 100; ++i) controlled.Step();
  EXPECT_LT(*controlled.setting.momentum, 0.5f - static_cast<float>(added) / 2);
  EXPECT_NEAR(closed.state().total_momentum(), 0.5, added / 2);
}

TEST(ClosedLoopMomentum, GoesOnFromTheMomentumThatItHad) {
  ClosedLoopMomentum control(0.5f, Config(0.1f), kValues);
  Quadratic quadratic(&control, 2);
  for (int i = 0; i < 100; ++i) quadratic.Step();
  ClosedLoopMomentum resumed(0.5f, Config(0.1f), kValues);
  resumed.Restore(control.state());
  quadratic.Step();
  ASSERT_LT(*quadratic.setting.momentum, 0.5f);
  const std::vector<float> zero(kValues);
  EXPECT_NEAR(*resumed.Set({0, 0, zero.data(), 0.1f}).momentum, *quadratic.setting.momentum, 0.001);
}

TEST(ClosedLoopMomentum, DelayBoundsTheStep) {
  v1::Compensation compensation = Config(1e-30f);
  compensation.set_step_bound(1.5f);
  ClosedLoopMomentum control(0.75f, compensation, 1), resumed(0.75f, compensation, 1);
  const float gradient[] = {0};
  EXPECT_EQ(control.Set({1, 5, gradient, 0.1f}).rate_factor, 1);
  // averaging 0.1: of 5 and 65 the mean is 11, and 1.5 / (0.25 * 12) is allowed.
  EXPECT_NEAR(control.Set({1, 65, gradient, 0.1f}).rate_factor, 0.5, 1e-6);
  EXPECT_NEAR(control.state().rate_factor(), 0.5, 1e-6);
  EXPECT_NEAR(control.state().staleness_mean(), 11, 1e-9);
  resumed.Restore(control.state());
  EXPECT_EQ(resumed.state().rate_factor(), control.state().rate_factor());
  EXPECT_EQ(resumed.Set({1, 3, gradient, 0.1f}).rate_factor, control.Set({1, 3, gradient, 0.1f}).rate_factor);
}

TEST(ClosedLoopMomentum, ReadsTheRateOfTheStepThatWasMade) {
  // Nothing but the gradient moves x, by half the rate: the total momentum is 0.
  v1::Compensation compensation = Config(1e-30f);
  compensation.set_step_bound(0.5f * 0.1f);
  ClosedLoopMomentum control(0.9f, compensation, 1);
  const float gradient[] = {1};
  float x = 0;
  for (uint64_t version = 1; version <= 4; ++version) {
    const MomentumControl::Setting setting = control.Set({version - 1, 0, gradient, 0.1f});
    EXPECT_NEAR(setting.rate_factor, 0.5, 1e-6);
    x -= 0.1f * setting.rate_factor;
    control.Stepped(version, &x);
  }
  EXPECT_NEAR(control.state().total_momentum(), 0, 1e-5);
}

TEST(ClosedLoopMomentum, StaysWithinItsBounds) {
  ClosedLoopMomentum control(0.5f, Config(100, -0.25f), kValues);
  Quadratic quadratic(&control, 3);
  for (int i = 0; i < 50; ++i) {
    quadratic.Step();
    ASSERT_GE(*quadratic.setting.momentum, -0.25f);
    ASSERT_LE(*quadratic.setting.momentum, 0.5f);
  }
}

TEST(ClosedLoopMomentum, LeavesWhatIsTooOldToMeasure) {
  ClosedLoopMomentum control(0.5f, Config(0.1f), kValues);
  Quadratic quadratic(&control, ClosedLoopMomentum::kVersions + 1);
  for (uint64_t i = 0; i < 2 * ClosedLoopMomentum::kVersions; ++i) quadratic.Step();
  const float before = *quadratic.setting.momentum;
  for (int i = 0; i < 20; ++i) quadratic.Step();
  EXPECT_EQ(*quadratic.setting.momentum, before);
}

TEST(ClosedLoopMomentum, CentersThatDoNotMoveGiveNoReading) {
  ClosedLoopMomentum control(0.5f, Config(0.1f), kValues);
  const std::vector<float> zero(kValues);
  for (uint64_t version = 0; version < 10; ++version) {
    EXPECT_EQ(control.Set({version, 0, zero.data(), 0.1f}).momentum, 0.5f);
    control.Stepped(version + 1, zero.data());
  }
  EXPECT_FALSE(control.state().has_total_momentum());
}

}  // namespace
}  // namespace catchment
