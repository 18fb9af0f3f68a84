#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 37;
constexpr float kEta = 0.1f;

std::vector<float> RandomVector(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

TEST(GapAware, DividesByTheGapInUsualSteps) {
  // A momentum buffer that has been 2 at all of 3 steps makes a usual step of eta * 2, whatever the running
  // average has forgotten of its beginning. A gap of 0.4 is then two steps, and the gradient a third.
  const GapAware gap(kEta);
  float state[] = {0};
  const float momentum[] = {2}, gradient[] = {3}, weights[] = {1.4f}, sent[] = {1};
  for (int step = 0; step < 3; ++step) gap.Stepped(1, momentum, state);
  float out[1];
  gap.Compensate(3, {1, gradient, weights, sent, state, out});
  EXPECT_NEAR(out[0], 1, 1e-4);
  // The other way it is as far.
  gap.Compensate(3, {1, gradient, sent, weights, state, out});
  EXPECT_NEAR(out[0], 1, 1e-4);
}

TEST(GapAware, FollowsTheFormulaStepByStep) {
  const GapAware gap(kEta);
  std::vector<float> state(kValues), out(kValues);
  std::vector<double> ra(kValues);
  for (int t = 1; t <= 6; ++t) {
    const std::vector<float> v = RandomVector(10 + t), g = RandomVector(20 + t), w = RandomVector(30 + t),
                             sent = RandomVector(40 + t);
    gap.Stepped(kValues, v.data(), state.data());
    gap.Compensate(t, {kValues, g.data(), w.data(), sent.data(), state.data(), out.data()});
    for (int64_t i = 0; i < kValues; ++i) {
      ra[i] = 0.999 * ra[i] + 0.001 * v[i] * v[i];
      const double usual = double{kEta} * (std::sqrt(ra[i] / (1 - std::pow(0.999, t))) + 1e-8);
      const double expected = g[i] / (1 + std::abs(double{w[i]} - sent[i]) / usual);
      ASSERT_NEAR(out[i], expected, 1e-4 * (1 + std::abs(expected))) << t << " " << i;
    }
  }
}

TEST(GapAware, NoUsualStepIsNearlyNoStep) {
  // Momentum of nothing: the least step is 1e-8 of the learning rate, and a gap of as much halves the
  // gradient.
  const GapAware gap(1);
  float state[] = {0};
  const float momentum[] = {0}, gradient[] = {3}, weights[] = {1e-8f}, sent[] = {0};
  gap.Stepped(1, momentum, state);
  float out[1];
  gap.Compensate(1, {1, gradient, weights, sent, state, out});
  EXPECT_NEAR(out[0], 1.5, 1e-4);
}

TEST(GapAware, VanishesWhereNothingIsStale) {
  const GapAware gap(kEta);
  const std::vector<float> g = RandomVector(1), w = RandomVector(2), v = RandomVector(3);
  std::vector<float> state(kValues), out(kValues);
  gap.Compensate(0, {kValues, g.data(), w.data(), w.data(), state.data(), out.data()});
  EXPECT_EQ(out, g);
  gap.Stepped(kValues, v.data(), state.data());
  gap.Compensate(1, {kValues, g.data(), w.data(), w.data(), state.data(), out.data()});
  EXPECT_EQ(out, g);
}

}  // namespace
}  // namespace catchment
