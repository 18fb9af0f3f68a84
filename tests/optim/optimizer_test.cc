#include "optim/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "common/base/random.h"

namespace catchment {
namespace {

// Longer than the pieces in which gradients are prepared, and no multiple of them.
constexpr int64_t kValues = 2500;
constexpr int kSteps = 100;

v1::Optimizer Config(v1::Optimizer::Kind kind, float momentum = 0, bool nesterov = false) {
  v1::Optimizer config;
  config.set_kind(kind);
  config.set_learning_rate(0.01f);
  config.set_momentum(momentum);
  config.set_nesterov(nesterov);
  config.set_beta1(0.9f);
  config.set_beta2(0.999f);
  config.set_rho(0.9f);
  config.set_epsilon(kind == v1::Optimizer::ADAGRAD    ? 1e-10f
                     : kind == v1::Optimizer::ADADELTA ? 1e-6f
                                                       : 1e-8f);
  return config;
}

v1::Optimizer WithDecay(v1::Optimizer config, float weight_decay) {
  config.set_weight_decay(weight_decay);
  return config;
}

v1::Optimizer Centered(v1::Optimizer config) {
  config.set_centered(true);
  return config;
}

v1::Optimizer WithClip(v1::Optimizer config, float clip_value) {
  config.set_clip_value(clip_value);
  return config;
}

// One parameter's weight and PyTorch's state for it, in double precision.
struct Scalar {
  double w = 0, a = 0, b = 0, c = 0;
};
using Reference = std::function<void(Scalar* s, double g, double lr, int t)>;

struct Case {
  std::string name;
  v1::Optimizer config;
  Reference reference;  // as torch.optim documents it
  double golden[2];     // w after two steps from w = 1 with g = 0.5, 0.25 and lr = 0.5, by hand
};

std::vector<Case> Cases() {
  const double mu = 0.9f, rho = 0.9f, beta1 = 0.9f, beta2 = 0.999f;
  return {
      {"Sgd",
       Config(v1::Optimizer::SGD),
       [](Scalar* s, double g, double lr, int) { s->w -= lr * g; },
       {0.75, 0.625}},
      {"Momentum",
       Config(v1::Optimizer::SGD, 0.9f),
       [=](Scalar* s, double g, double lr, int t) {
         s->a = t == 1 ? g : mu * s->a + g;
         s->w -= lr * s->a;
       },
       // buffer 0.5, then 0.45 + 0.25 = 0.7
       {0.75, 0.4}},
      {"Nesterov",
       Config(v1::Optimizer::SGD, 0.9f, true),
       [=](Scalar* s, double g, double lr, int t) {
         s->a = t == 1 ? g : mu * s->a + g;
         s->w -= lr * (g + mu * s->a);
       },
       // steps 0.5 + 0.45 = 0.95, then 0.25 + 0.63 = 0.88
       {0.525, 0.085}},
      {"Adagrad",
       Config(v1::Optimizer::ADAGRAD),
       [](Scalar* s, double g, double lr, int) {
         s->a += g * g;
         s->w -= lr * g / (std::sqrt(s->a) + double{1e-10f});
       },
       // sums 0.25, then 0.3125, whose root is 0.5590170
       {0.5, 0.2763932}},
      {"Adam",
       Config(v1::Optimizer::ADAM),
       [=](Scalar* s, double g, double lr, int t) {
         s->a = beta1 * s->a + (1 - beta1) * g;
         s->b = beta2 * s->b + (1 - beta2) * g * g;
         const double m = s->a / (1 - std::pow(beta1, t)), v = s->b / (1 - std::pow(beta2, t));
         s->w -= lr * m / (std::sqrt(v) + double{1e-8f});
       },
       // m^ 0.5, v^ 0.25; then m^ = 0.07 / 0.19 = 0.3684211, v^ = 0.00031225 / 0.001999 = 0.1562031
       {0.5, 0.0339102}},
      {"RmsProp",
       Config(v1::Optimizer::RMSPROP),
       [=](Scalar* s, double g, double lr, int) {
         s->a = rho * s->a + (1 - rho) * g * g;
         s->w -= lr * g / (std::sqrt(s->a) + double{1e-8f});
       },
       // v 0.025, whose root is 0.1581139: a step of 1.5811388; then 0.02875, root 0.1695582, step 0.7372098
       {-0.5811388, -1.3183486}},
      {"RmsPropMomentum",
       Config(v1::Optimizer::RMSPROP, 0.5f),
       [=](Scalar* s, double g, double lr, int) {
         s->a = rho * s->a + (1 - rho) * g * g;
         s->b = 0.5 * s->b + g / (std::sqrt(s->a) + double{1e-8f});
         s->w -= lr * s->b;
       },
       // b 3.1622776, then 1.5811388 + 1.4744196 = 3.0555584
       {-0.5811388, -2.1089180}},
      {"RmsPropCentered",
       Centered(Config(v1::Optimizer::RMSPROP)),
       [=](Scalar* s, double g, double lr, int) {
         s->a = rho * s->a + (1 - rho) * g * g;
         s->b = rho * s->b + (1 - rho) * g;
         s->w -= lr * g / (std::sqrt(s->a - s->b * s->b) + double{1e-8f});
       },
       // v 0.025, a 0.05, root of the difference 0.15; then v 0.02875, a 0.07, root 0.1544345
       {-0.6666667, -1.4760716}},
      {"RmsPropCenteredMomentum",
       Centered(Config(v1::Optimizer::RMSPROP, 0.5f)),
       [=](Scalar* s, double g, double lr, int) {
         s->a = rho * s->a + (1 - rho) * g * g;
         s->c = rho * s->c + (1 - rho) * g;
         s->b = 0.5 * s->b + g / (std::sqrt(s->a - s->c * s->c) + double{1e-8f});
         s->w -= lr * s->b;
       },
       // b 3.3333333, then 1.6666667 + 1.6188098 = 3.2854765
       {-0.6666667, -2.3094049}},
      {"Adadelta",
       Config(v1::Optimizer::ADADELTA),
       [=](Scalar* s, double g, double lr, int) {
         s->a = rho * s->a + (1 - rho) * g * g;
         const double d = std::sqrt(s->b + double{1e-6f}) / std::sqrt(s->a + double{1e-6f}) * g;
         s->b = rho * s->b + (1 - rho) * d * d;
         s->w -= lr * d;
       },
       // v 0.025, d = 0.001 / 0.1581170 * 0.5 = 0.0031622, u 0.0000009999; v 0.02875,
       // d = 0.0014142 / 0.1695612 * 0.25 = 0.0020851
       {0.9984189, 0.9973764}},
      {"AdamW",
       WithDecay(Config(v1::Optimizer::ADAMW), 0.1f),
       [=](Scalar* s, double g, double lr, int t) {
         s->w *= 1 - lr * double{0.1f};
         s->a = beta1 * s->a + (1 - beta1) * g;
         s->b = beta2 * s->b + (1 - beta2) * g * g;
         const double m = s->a / (1 - std::pow(beta1, t)), v = s->b / (1 - std::pow(beta2, t));
         s->w -= lr * m / (std::sqrt(v) + double{1e-8f});
       },
       // 0.95 - 0.5, then 0.4275 - 0.4660898: Adam's steps
       {0.45, -0.0385898}},
      {"ClippedMomentumWithDecay",
       WithDecay(WithClip(Config(v1::Optimizer::SGD, 0.5f), 0.3f), 0.1f),
       [=](Scalar* s, double g, double lr, int) {
         g = std::min(std::max(g, -double{0.3f}), double{0.3f}) + double{0.1f} * s->w;
         s->a = 0.5 * s->a + g;
         s->w -= lr * s->a;
       },
       // 0.3 + 0.1 = 0.4; then 0.25 + 0.08 = 0.33 and a buffer of 0.53
       {0.8, 0.535}},
  };
}

class OptimizerTest : public testing::TestWithParam<size_t> {
 protected:
  OptimizerTest() : case_(Cases()[GetParam()]), optimizer_(MakeOptimizer(case_.config)) {}

  // Weights and states of a run of kSteps in pieces of `piece` values.
  struct Run {
    std::vector<float> weights, copy;
    std::vector<std::vector<float>> states;
  };
  Run RunInPieces(int64_t piece, bool with_copy) const {
    Run run{std::vector<float>(kValues), std::vector<float>(kValues), {}};
    run.states.assign(optimizer_->num_states(), std::vector<float>(kValues, 0.0f));
    for (int64_t i = 0; i < kValues; ++i) run.weights[i] = Weight(i);
    std::vector<float> gradient(kValues);
    for (int t = 1; t <= kSteps; ++t) {
      for (int64_t i = 0; i < kValues; ++i) gradient[i] = Gradient(i, t);
      for (int64_t begin = 0; begin < kValues; begin += piece) {
        Optimizer::Part part{std::min(piece, kValues - begin), gradient.data() + begin,
                             run.weights.data() + begin};
        for (int s = 0; s < optimizer_->num_states(); ++s) part.states[s] = run.states[s].data() + begin;
        if (with_copy) part.copy = run.copy.data() + begin;
        optimizer_->Apply({LearningRate(t), static_cast<uint64_t>(t)}, part);
      }
    }
    return run;
  }

  static float Weight(int64_t i) { return static_cast<float>(Random(Derive(1, i)).Uniform(1.5, 1.9)); }
  static float Gradient(int64_t i, int t) {
    return static_cast<float>(Random(Derive(Derive(2, i), t)).Normal());
  }
  static float LearningRate(int t) { return 0.01f / static_cast<float>(t); }

  const Case case_;
  const std::unique_ptr<Optimizer> optimizer_;
};

TEST_P(OptimizerTest, AgreesWithASequentialReferenceInDoublePrecision) {
  const Run run = RunInPieces(kValues, false);
  for (int64_t i = 0; i < kValues; ++i) {
    Scalar scalar{Weight(i)};
    for (int t = 1; t <= kSteps; ++t) case_.reference(&scalar, Gradient(i, t), LearningRate(t), t);
    ASSERT_NEAR(run.weights[i], scalar.w, 1e-6 * std::fabs(scalar.w)) << "value " << i;
  }
}

TEST_P(OptimizerTest, PiecesHaveTheBitsOfTheWhole) {
  const Run whole = RunInPieces(kValues, false);
  for (int64_t piece : {1, 7, 16, 333}) {
    const Run pieces = RunInPieces(piece, false);
    EXPECT_EQ(pieces.weights, whole.weights) << piece;
    EXPECT_EQ(pieces.states, whole.states) << piece;
  }
}

TEST_P(OptimizerTest, CopyIsTheNewWeightsAndAskingForItChangesNothing) {
  const Run without = RunInPieces(kValues, false);
  const Run with = RunInPieces(kValues, true);
  EXPECT_EQ(with.copy, with.weights);
  EXPECT_EQ(with.weights, without.weights);
}

TEST_P(OptimizerTest, TwoStepsByHand) {
  float w = 1, a = 0, b = 0, c = 0;
  const float gradients[] = {0.5f, 0.25f};
  for (uint64_t t : {1, 2}) {
    optimizer_->Apply({0.5f, t}, {1, &gradients[t - 1], &w, {&a, &b, &c}, nullptr});
    EXPECT_NEAR(w, case_.golden[t - 1], 1e-6) << "step " << t;
  }
}

TEST_P(OptimizerTest, StepGoesDownASmallSlope) {
  float w = 3, a = 0, b = 0, c = 0;
  for (uint64_t t = 1; t <= 8; ++t) {
    const float before = w * w, gradient = 2 * w;
    optimizer_->Apply({0.01f, t}, {1, &gradient, &w, {&a, &b, &c}, nullptr});
    ASSERT_LT(w * w, before) << "step " << t;
  }
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTest, testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) { return Cases()[info.param].name; });

TEST(MakeOptimizerTest, KeepsAsManyStatesAsTheRuleNeeds) {
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::SGD))->num_states(), 0);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::SGD, 0.9f))->num_states(), 1);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::SGD, 0.9f, true))->num_states(), 1);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::ADAGRAD))->num_states(), 1);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::ADAM))->num_states(), 2);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::RMSPROP))->num_states(), 1);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::RMSPROP, 0.9f))->num_states(), 2);
  EXPECT_EQ(MakeOptimizer(Centered(Config(v1::Optimizer::RMSPROP)))->num_states(), 2);
  EXPECT_EQ(MakeOptimizer(Centered(Config(v1::Optimizer::RMSPROP, 0.9f)))->num_states(), 3);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::ADADELTA))->num_states(), 2);
  EXPECT_EQ(MakeOptimizer(Config(v1::Optimizer::ADAMW))->num_states(), 2);
  EXPECT_EQ(MakeOptimizer(WithDecay(Config(v1::Optimizer::SGD, 0.9f), 0.1f))->num_states(), 1);
}

// Its variance is 0, which rounding must not make less.
TEST(RmsPropTest, CenteredTakesAGradientThatNeverChanges) {
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(Centered(Config(v1::Optimizer::RMSPROP)));
  std::vector<float> gradient(kValues), weights(kValues, 1.0f), v(kValues), a(kValues);
  for (int64_t i = 0; i < kValues; ++i) gradient[i] = 0.001f * static_cast<float>(i + 1);
  for (uint64_t t = 1; t <= 300; ++t) {
    optimizer->Apply({1e-6f, t}, {kValues, gradient.data(), weights.data(), {v.data(), a.data()}});
  }
  for (int64_t i = 0; i < kValues; ++i) ASSERT_TRUE(std::isfinite(weights[i])) << gradient[i];
}

TEST(MakeOptimizerDeathTest, RefusesAJobThatWasNotValidated) {
  EXPECT_DEATH(MakeOptimizer(v1::Optimizer()), "a job that was not validated: optimizer.kind 0");
}

}  // namespace
}  // namespace catchment
