#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 37;

std::vector<float> RandomVector(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

struct Case {
  std::vector<float> gradient = RandomVector(1), weights = RandomVector(2), sent = RandomVector(3);
  std::vector<float> state = std::vector<float>(kValues), out = std::vector<float>(kValues, NAN);

  void Run(const GradientCompensation& compensation) {
    compensation.Compensate(
        5, {kValues, gradient.data(), weights.data(), sent.data(), state.data(), out.data()});
  }
};

TEST(DelayCompensation, AddsTheTaylorTerm) {
  // By hand: 2 + 0.5 * 4 * (1 - 0.75), and what a sign that is wrong in either factor would not give.
  const float gradient[] = {2, -2}, weights[] = {1, 0.75}, sent[] = {0.75, 1};
  float out[2];
  DelayCompensation(0.5f).Compensate(0, {2, gradient, weights, sent, nullptr, out});
  EXPECT_EQ(out[0], 2.5f);
  EXPECT_EQ(out[1], -2.5f);
  EXPECT_EQ(DelayCompensation(0.5f).state_name(), nullptr);
}

TEST(DelayCompensation, IsExactOnAQuadraticOfUnitGradient) {
  // f = w*w/2 has Hessian 1. Where g = 1, g*g stands for it exactly: the estimate is the gradient at w.
  const float gradient[] = {1}, sent[] = {1}, weights[] = {1.25};
  float out[1];
  DelayCompensation(1).Compensate(0, {1, gradient, weights, sent, nullptr, out});
  EXPECT_EQ(out[0], 1.25f);
}

TEST(DelayCompensation, VanishesWhereNothingIsStale) {
  Case c;
  c.sent = c.weights;
  c.Run(DelayCompensation(0.04f));
  EXPECT_EQ(c.out, c.gradient);
  c.Run(AdaptiveDelayCompensation(2, 0.95f));
  EXPECT_EQ(c.out, c.gradient);
}

TEST(DelayCompensation, LeavesAGradientWhoseSquareOverflowsWhereNothingIsStale) {
  const float gradient[] = {1e20f, -3e38f}, weights[] = {1, -2};
  float out[2], state[2] = {};
  DelayCompensation(0.04f).Compensate(0, {2, gradient, weights, weights, nullptr, out});
  EXPECT_EQ(out[0], 1e20f);
  EXPECT_EQ(out[1], -3e38f);
  AdaptiveDelayCompensation(2, 0.95f).Compensate(0, {2, gradient, weights, weights, state, out});
  EXPECT_EQ(out[0], 1e20f);
  EXPECT_EQ(out[1], -3e38f);
}

TEST(AdaptiveDelayCompensation, DividesByTheMeanSquare) {
  Case c;
  const AdaptiveDelayCompensation compensation(2, 0.95f);
  ASSERT_NE(compensation.state_name(), nullptr);
  std::vector<double> ms(kValues);
  for (uint64_t step = 0; step < 5; ++step) {
    c.gradient = RandomVector(10 + step);
    c.weights = RandomVector(20 + step);
    c.Run(compensation);
    for (int64_t i = 0; i < kValues; ++i) {
      const double g = c.gradient[i];
      ms[i] = 0.95 * ms[i] + 0.05 * g * g;
      const double expected = g + 2 / std::sqrt(ms[i] + 1e-7) * g * g * (double{c.weights[i]} - c.sent[i]);
      ASSERT_NEAR(c.out[i], expected, 1e-5 * (1 + std::abs(expected))) << step << " " << i;
      ASSERT_NEAR(c.state[i], ms[i], 1e-6 * (1 + ms[i]));
    }
  }
}

}  // namespace
}  // namespace catchment
