#include "optim/delayed_nesterov.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

namespace catchment {
namespace {

using testing::ElementsAre;

struct State {
  std::vector<float> weights, momentum, sum;

  explicit State(std::vector<float> initial)
      : weights(std::move(initial)), momentum(weights.size()), sum(weights.size()) {}
  void Apply(const Optimizer& optimizer, uint64_t number, const std::vector<float>& gradient) {
    optimizer.Apply({.learning_rate = 0.5f, .number = number}, {.n = static_cast<int64_t>(weights.size()),
                                                                .gradient = gradient.data(),
                                                                .weights = weights.data(),
                                                                .states = {momentum.data(), sum.data()}});
  }
};

v1::Optimizer Nesterov(float momentum) {
  v1::Optimizer config;
  config.set_kind(v1::Optimizer::SGD);
  config.set_momentum(momentum);
  config.set_nesterov(true);
  return config;
}

TEST(DelayedNesterovTest, ByHand) {
  State state({1});
  const DelayedNesterov optimizer(0.5f, 2);
  state.Apply(optimizer, 1, {4});  // w -= 0.5 * 4 / 2
  EXPECT_THAT(state.weights, ElementsAre(0));
  EXPECT_THAT(state.momentum, ElementsAre(0));
  state.Apply(optimizer, 2, {2});  // m = (4 + 2) / 2 ; w -= 0.5 * (0.5 * 3 + 2 / 2)
  EXPECT_THAT(state.weights, ElementsAre(-1.25));
  EXPECT_THAT(state.momentum, ElementsAre(3));
  EXPECT_THAT(state.sum, ElementsAre(0));
  state.Apply(optimizer, 3, {0});
  EXPECT_THAT(state.weights, ElementsAre(-1.25)) << "momentum alone moves nothing in between";
  state.Apply(optimizer, 4, {0});  // m = 1.5 ; w -= 0.5 * 0.75
  EXPECT_THAT(state.weights, ElementsAre(-1.625));
}

TEST(DelayedNesterovTest, ARoundIsNesterovsStepWithTheMean) {
  constexpr int kEvery = 4;
  const auto delayed = MakeOptimizer(Nesterov(0.75f), kEvery), nesterov = MakeOptimizer(Nesterov(0.75f));
  State a({1, -2}), b({1, -2});
  uint64_t number = 0;
  for (int round = 1; round <= 20; ++round) {
    std::vector<float> sum(2);
    for (int i = 0; i < kEvery; ++i) {
      const std::vector<float> gradient = {static_cast<float>((7 * ++number) % 5) - 2, static_cast<float>(i)};
      a.Apply(*delayed, number, gradient);
      for (int k = 0; k < 2; ++k) sum[k] += gradient[k];
    }
    b.Apply(*nesterov, round, {sum[0] / kEvery, sum[1] / kEvery});
    for (int k = 0; k < 2; ++k) EXPECT_NEAR(a.weights[k], b.weights[k], 1e-4) << round;
  }
}

TEST(DelayedNesterovTest, IsNotDelayedByOne) {
  EXPECT_EQ(MakeOptimizer(Nesterov(0.9f), 1)->num_states(), 1);
  EXPECT_EQ(MakeOptimizer(Nesterov(0.9f), 2)->num_states(), 2);
}

TEST(DelayedNesterovTest, DecaysAndClipsBefore) {
  v1::Optimizer config = Nesterov(0.5f);
  config.set_clip_value(1);
  config.set_weight_decay(0.5f);
  State state({2});
  state.Apply(*MakeOptimizer(config, 2), 1, {8});  // g = 1 + 0.5 * 2
  EXPECT_THAT(state.weights, ElementsAre(1.5));
}

}  // namespace
}  // namespace catchment
