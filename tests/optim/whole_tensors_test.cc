// LARS, LARC and LAMB: optimizers that take norms over whole tensors.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "optim/optimizer.h"

namespace catchment {
namespace {

using Values = std::vector<float>;

v1::Optimizer Lars(float momentum, float trust_coefficient, float weight_decay) {
  v1::Optimizer config;
  config.set_kind(v1::Optimizer::LARS);
  config.set_momentum(momentum);
  config.set_trust_coefficient(trust_coefficient);
  config.set_weight_decay(weight_decay);
  return config;
}

v1::Optimizer Larc(float momentum, float trust_coefficient, float weight_decay) {
  v1::Optimizer config = Lars(momentum, trust_coefficient, weight_decay);
  config.set_kind(v1::Optimizer::LARC);
  return config;
}

v1::Optimizer Lamb(float weight_decay, float epsilon = 1e-6f) {
  v1::Optimizer config;
  config.set_kind(v1::Optimizer::LAMB);
  config.set_beta1(0.9f);
  config.set_beta2(0.999f);
  config.set_epsilon(epsilon);
  config.set_weight_decay(weight_decay);
  return config;
}

v1::Optimizer Clipped(v1::Optimizer config, float clip_value) {
  config.set_clip_value(clip_value);
  return config;
}

// Some tensors, one behind the other, and their optimizer.
class Trained {
 public:
  Trained(const v1::Optimizer& config, std::vector<int64_t> sizes, Values weights)
      : optimizer_(MakeOptimizer(config)),
        weights_(std::move(weights)),
        a_(weights_.size()),
        b_(weights_.size()) {
    std::partial_sum(sizes.begin(), sizes.end(), std::back_inserter(ends_));
    EXPECT_EQ(ends_.back(), static_cast<int64_t>(weights_.size()));
  }

  void Step(float learning_rate, const Values& gradient, float* copy = nullptr) {
    optimizer_->Apply({learning_rate, ++step_}, {static_cast<int64_t>(weights_.size()),
                                                 gradient.data(),
                                                 weights_.data(),
                                                 {a_.data(), b_.data()},
                                                 copy,
                                                 ends_});
  }
  const Values& weights() const { return weights_; }

 private:
  const std::unique_ptr<Optimizer> optimizer_;
  std::vector<int64_t> ends_;
  Values weights_, a_, b_;
  uint64_t step_ = 0;
};

double NormOf(const std::vector<double>& values) {
  return std::sqrt(std::inner_product(values.begin(), values.end(), values.begin(), 0.0));
}

// The papers' algorithms for one tensor, in double precision.
struct Reference {
  explicit Reference(const v1::Optimizer& config, const Values& weights)
      : c(config), w(weights.begin(), weights.end()), a(w.size()), b(w.size()) {}

  void Step(double lr, Values gradient) {
    std::vector<double> g(gradient.begin(), gradient.end());
    if (c.has_clip_value()) {
      for (double& x : g) x = std::max(-double{c.clip_value()}, std::min(double{c.clip_value()}, x));
    }
    ++t;
    c.kind() == v1::Optimizer::LAMB ? StepLamb(lr, g) : StepLars(lr, g);
  }
  void StepLars(double lr, const std::vector<double>& g) {
    const double decay = c.weight_decay(), w_norm = NormOf(w), g_norm = NormOf(g);
    double local = 1;
    if (w_norm > 0 && g_norm > 0) local = c.trust_coefficient() * w_norm / (g_norm + decay * w_norm);
    if (c.kind() == v1::Optimizer::LARC) local = std::min(local, 1.0);
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = c.momentum() * a[i] + lr * local * (g[i] + decay * w[i]);
      w[i] -= a[i];
    }
  }
  void StepLamb(double lr, const std::vector<double>& g) {
    const double beta1 = c.beta1(), beta2 = c.beta2();
    std::vector<double> update(w.size());
    for (size_t i = 0; i < w.size(); ++i) {
      a[i] = beta1 * a[i] + (1 - beta1) * g[i];
      b[i] = beta2 * b[i] + (1 - beta2) * g[i] * g[i];
      const double m = a[i] / (1 - std::pow(beta1, t)), v = b[i] / (1 - std::pow(beta2, t));
      update[i] = m / (std::sqrt(v) + c.epsilon()) + c.weight_decay() * w[i];
    }
    const double w_norm = NormOf(w), u_norm = NormOf(update);
    const double ratio = w_norm > 0 && u_norm > 0 ? w_norm / u_norm : 1;
    for (size_t i = 0; i < w.size(); ++i) w[i] -= lr * ratio * update[i];
  }

  const v1::Optimizer c;
  std::vector<double> w, a, b;
  int t = 0;
};

struct Case {
  std::string name;
  v1::Optimizer config;
  float learning_rate;
};

std::vector<Case> Cases() {
  return {{"Lars", Lars(0.9f, 0.001f, 0), 0.5f},
          {"LarsWithoutMomentum", Lars(0, 0.01f, 0.1f), 0.5f},
          {"LarsWithDecayClipped", Clipped(Lars(0.9f, 0.001f, 0.1f), 0.5f), 1},
          // Some tensors have a ratio above 1, and some below.
          {"Larc", Larc(0.9f, 0.02f, 0), 0.1f},
          {"LarcWithDecayClipped", Clipped(Larc(0.9f, 0.02f, 0.1f), 0.5f), 0.1f},
          {"Lamb", Lamb(0), 0.002f},
          {"LambWithDecay", Lamb(0.1f), 0.002f},
          {"LambWithDecayClipped", Clipped(Lamb(0.01f, 0.001f), 0.5f), 0.002f}};
}

class WholeTensorsTest : public testing::TestWithParam<size_t> {
 protected:
  const Case case_ = Cases()[GetParam()];
};

const std::vector<int64_t> kSizes = {1, 7, 16, 1000, 33, 2500};

Values Weights(int tensor, int64_t n) {
  Values weights;
  for (int64_t i = 0; i < n; ++i) {
    const double scale = std::pow(10.0, tensor - 2);
    weights.push_back(static_cast<float>(scale * Random(Derive(tensor, i)).Uniform(1.5, 1.9)));
  }
  return weights;
}

Values Gradient(int tensor, int64_t n, int step) {
  Values gradient;
  for (int64_t i = 0; i < n; ++i) {
    gradient.push_back(static_cast<float>(Random(Derive(Derive(100 + tensor, i), step)).Normal()));
  }
  return gradient;
}

void Append(const Values& more, Values* all) { all->insert(all->end(), more.begin(), more.end()); }

TEST_P(WholeTensorsTest, AgreesWithThePaperInDoublePrecision) {
  Values weights;
  std::vector<Reference> references;
  for (size_t t = 0; t < kSizes.size(); ++t) {
    Append(Weights(t, kSizes[t]), &weights);
    references.emplace_back(case_.config, Weights(t, kSizes[t]));
  }
  Trained trained(case_.config, kSizes, weights);
  Values copy(weights.size());
  for (int step = 1; step <= 100; ++step) {
    Values gradient;
    for (size_t t = 0; t < kSizes.size(); ++t) {
      Append(Gradient(t, kSizes[t], step), &gradient);
      references[t].Step(case_.learning_rate, Gradient(t, kSizes[t], step));
    }
    trained.Step(case_.learning_rate, gradient, step % 2 == 0 ? copy.data() : nullptr);
  }
  EXPECT_EQ(copy, trained.weights());
  const float* got = trained.weights().data();
  for (size_t t = 0; t < kSizes.size(); ++t) {
    double moved = 0;
    const Values before = Weights(t, kSizes[t]);
    for (int64_t i = 0; i < kSizes[t]; ++i, ++got) {
      ASSERT_NEAR(*got, references[t].w[i], 2e-6 * std::abs(references[t].w[i]))
          << "tensor " << t << ", value " << i;
      moved = std::max(moved, std::abs(*got / before[i] - 1.0));
    }
    EXPECT_GT(moved, 0.01) << "tensor " << t << ": the test would show nothing";
  }
}

TEST_P(WholeTensorsTest, TensorsAreIndependent) {
  Values together = Weights(1, 7);
  Append(Weights(2, 100), &together);
  Trained both(case_.config, {7, 100}, together);
  Trained first(case_.config, {7}, Weights(1, 7)), second(case_.config, {100}, Weights(2, 100));
  for (int step = 1; step <= 10; ++step) {
    Values gradient = Gradient(1, 7, step);
    Append(Gradient(2, 100, step), &gradient);
    both.Step(0.01f, gradient);
    first.Step(0.01f, Gradient(1, 7, step));
    second.Step(0.01f, Gradient(2, 100, step));
  }
  Values alone = first.weights();
  Append(second.weights(), &alone);
  EXPECT_EQ(both.weights(), alone) << "bit for bit, wherever a tensor lies";
}

TEST_P(WholeTensorsTest, StepGoesDownAQuadratic) {
  Trained trained(case_.config, {3}, {3, -1, 2});
  const auto loss = [&] {
    const Values& w = trained.weights();
    return w[0] * w[0] + 5 * w[1] * w[1] + w[2] * w[2] / 2;
  };
  for (int step = 1; step <= 8; ++step) {
    const Values w = trained.weights();
    const float before = loss();
    trained.Step(0.01f, {2 * w[0], 10 * w[1], w[2]});
    ASSERT_LT(loss(), before) << "step " << step;
  }
}

TEST_P(WholeTensorsTest, ZeroTensorsMoveByThePlainStepAndNothingIsNotANumber) {
  Trained zero(case_.config, {2, 2}, {0, 0, 3, 4});
  zero.Step(0.01f, {0, 0, 0, 0});
  EXPECT_EQ(zero.weights()[0], 0);
  EXPECT_EQ(zero.weights()[1], 0);
  for (int step = 1; step <= 3; ++step) zero.Step(0.01f, {0.5f, -0.25f, 0.1f, 0});
  for (float w : zero.weights()) EXPECT_TRUE(std::isfinite(w));
  EXPECT_LT(zero.weights()[0], 0);
  EXPECT_GT(zero.weights()[1], 0);
}

TEST_P(WholeTensorsTest, VanishingGradientsLeaveNumbers) {
  // So small that |w| / |g| overflows a float.
  Trained trained(case_.config, {2}, {3, 4});
  for (int step = 1; step <= 3; ++step) trained.Step(1, {1e-42f, 0});
  for (float w : trained.weights()) EXPECT_TRUE(std::isfinite(w)) << w;
}

INSTANTIATE_TEST_SUITE_P(All, WholeTensorsTest, testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) { return Cases()[info.param].name; });

TEST(LarsTest, TwoStepsByHand) {
  Trained trained(Lars(0.5f, 0.1f, 0.1f), {2}, {3, 4});
  // |w| = 5, |g| = 1: r = 0.1 * 5 / 1.5 = 1/3 of (0.9, 1.2).
  trained.Step(1, {0.6f, 0.8f});
  EXPECT_NEAR(trained.weights()[0], 2.7, 1e-6);
  EXPECT_NEAR(trained.weights()[1], 3.6, 1e-6);
  // |w| = 4.5: r = 0.45 / 1.45 of (0.87, 1.16) is (0.27, 0.36), and half of (0.3, 0.4) comes to it.
  trained.Step(1, {0.6f, 0.8f});
  EXPECT_NEAR(trained.weights()[0], 2.28, 1e-6);
  EXPECT_NEAR(trained.weights()[1], 3.04, 1e-6);
}

// Without momentum and decay no value moves further than SGD's, and where LARS moves less LARC does the same.
TEST(LarcTest, MovesAsLarsButNotFurtherThanSgd) {
  const Values weights = {3, 4, 0.03f, 0.04f}, gradient = {0.6f, 0.8f, 0.6f, 0.8f};
  Trained larc(Larc(0, 0.5f, 0), {2, 2}, weights), lars(Lars(0, 0.5f, 0), {2, 2}, weights);
  larc.Step(0.1f, gradient);
  lars.Step(0.1f, gradient);
  for (int i : {0, 1}) EXPECT_FLOAT_EQ(larc.weights()[i], weights[i] - 0.1f * gradient[i]) << "r = 2.5";
  for (int i : {2, 3}) EXPECT_EQ(larc.weights()[i], lars.weights()[i]) << "r = 0.025";
  EXPECT_LT(lars.weights()[0], larc.weights()[0]);
}

TEST(LarsTest, ZeroWeightsOrGradientsGetARatioOfOne) {
  Trained trained(Lars(0, 0.001f, 0.5f), {2, 2}, {0, 0, 2, 4});
  trained.Step(0.1f, {1, 2, 0, 0});
  EXPECT_EQ(trained.weights(), (Values{-0.1f, -0.2f, 1.9f, 3.8f})) << "0.1 * (g + 0.5 * w)";
}

TEST(LarsTest, StepIsAShareOfTheWeightsWhateverTheGradientsScale) {
  for (float scale : {1e-30f, 1.0f, 1e30f}) {
    Trained trained(Lars(0, 0.01f, 0), {2}, {3, 4});
    trained.Step(0.5f, {scale * 3, scale * -4});
    EXPECT_NEAR(trained.weights()[0], 3 - 0.005 * 3, 1e-6) << scale;
    EXPECT_NEAR(trained.weights()[1], 4 + 0.005 * 4, 1e-6) << scale;
  }
}

TEST(LambTest, FirstStepByHand) {
  Trained trained(Lamb(0.1f, 1e-9f), {2}, {3, 4});
  // Adam's first step is the gradient's sign: u = (1 + 0.3, -1 + 0.4), |u| = sqrt(2.05), |w| = 5.
  trained.Step(0.1f, {0.5f, -0.25f});
  EXPECT_NEAR(trained.weights()[0], 3 - 0.1 * 5 / 1.43178211 * 1.3, 1e-6);
  EXPECT_NEAR(trained.weights()[1], 4 + 0.1 * 5 / 1.43178211 * 0.6, 1e-6);
}

TEST(LambTest, StepHasTheLearningRatesShareOfTheWeightsNorm) {
  const Values before = Weights(2, 1000);
  Trained trained(Lamb(0.1f), {1000}, before);
  trained.Step(0.01f, Gradient(2, 1000, 1));
  std::vector<double> moved;
  for (int i = 0; i < 1000; ++i) moved.push_back(double{before[i]} - trained.weights()[i]);
  EXPECT_NEAR(NormOf(moved), 0.01 * NormOf({before.begin(), before.end()}), 1e-5);
}

TEST(LambTest, ZeroWeightsGetARatioOfOne) {
  Trained trained(Lamb(0, 1e-9f), {2}, {0, 0});
  trained.Step(0.1f, {1, -2});
  EXPECT_NEAR(trained.weights()[0], -0.1, 1e-6);
  EXPECT_NEAR(trained.weights()[1], 0.1, 1e-6);
}

TEST(WholeTensorsDeathTest, PartsOfTensorsAreABug) {
  Values w(4), g(4), a(4), b(4);
  const std::vector<int64_t> ends = {3};
  const auto optimizer = MakeOptimizer(Lamb(0));
  EXPECT_DEATH(optimizer->Apply({1, 1}, {4, g.data(), w.data(), {a.data(), b.data()}}),
               "not of whole tensors");
  EXPECT_DEATH(optimizer->Apply({1, 1}, {4, g.data(), w.data(), {a.data(), b.data()}, nullptr, ends}),
               "not of whole tensors");
}

}  // namespace
}  // namespace catchment
