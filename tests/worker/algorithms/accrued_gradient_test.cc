#include "worker/algorithms/accrued_gradient.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

// A center of one value that SGD moves at once, and what was done to it.
class FakeParameters final : public Parameters {
 public:
  explicit FakeParameters(float center, float learning_rate) : center_(center), learning_rate_(learning_rate) {}

  absl::Status Pull(uint64_t min_version, absl::Span<float> weights) override {
    log_.push_back(absl::StrCat("pull ", min_version));
    weights[0] = center_;
    return error_;
  }
  absl::StatusOr<Outcome> Push(absl::Span<const float> gradient, uint32_t samples) override {
    log_.push_back(absl::StrCat("push ", gradient[0], " of ", samples));
    return Apply(gradient[0]);
  }
  absl::StatusOr<Outcome> PushPull(absl::Span<const float> gradient, uint32_t samples,
                                   absl::Span<float> weights) override {
    log_.push_back(absl::StrCat("push ", gradient[0], " of ", samples, " and pull"));
    const absl::StatusOr<Outcome> outcome = Apply(gradient[0]);
    weights[0] = center_;
    return outcome;
  }
  absl::StatusOr<Outcome> Exchange(absl::Span<const float>, uint32_t, absl::Span<float>) override {
    return absl::UnimplementedError("no exchange belongs to accrued gradients");
  }

  std::vector<std::string> TakeLog() { return std::move(log_); }
  float center() const { return center_; }
  void FailWith(absl::Status error) { error_ = std::move(error); }
  void AnswerWith(Outcome outcome) { outcome_ = outcome; }

 private:
  absl::StatusOr<Outcome> Apply(float gradient) {
    if (!error_.ok()) return error_;
    center_ -= learning_rate_ * gradient;
    return outcome_;
  }

  float center_;
  const float learning_rate_;
  absl::Status error_;
  Outcome outcome_;
  std::vector<std::string> log_;
};

v1::AccruedGradient Config(uint32_t push_period, uint32_t fetch_period, float local_learning_rate = 0) {
  v1::AccruedGradient config;
  config.set_push_period(push_period);
  config.set_fetch_period(fetch_period);
  config.set_local_learning_rate(local_learning_rate);
  return config;
}

// f(x) = x^2 / 2, noting where the gradient is asked for.
struct Quadratic {
  mutable std::vector<float> asked_at;
  void operator()(absl::Span<const float> x, absl::Span<float> g) const {
    asked_at.push_back(x[0]);
    g[0] = x[0];
  }
};

using Log = std::vector<std::string>;

// n_push 2, n_fetch 3, eta_local 1/2, and a server with eta 1/4; every number worked out by hand.
TEST(AccruedGradientTest, FollowsDownpoursPeriodsStepByStep) {
  FakeParameters parameters(8, 0.25f);
  AccruedGradient algorithm(Config(2, 3, 0.5f), 1, &parameters);
  Quadratic f;
  const auto step = [&](uint32_t samples) {
    EXPECT_TRUE(algorithm.Run({samples, 0}, f).ok());
    return parameters.TakeLog();
  };
  ASSERT_TRUE(algorithm.Start(5).ok());
  EXPECT_EQ(parameters.TakeLog(), Log{"pull 5"});
  EXPECT_EQ(step(1), Log{}) << "x 8 -> 4, a = 8";
  EXPECT_EQ(step(2), Log{"push 12 of 3"}) << "x 4 -> 2, a = 12, center 8 - 3 = 5";
  EXPECT_EQ(step(4), Log{"pull 0"}) << "x 2 -> 1 -> 5, a = 2";
  EXPECT_EQ(step(8), Log{"push 7 of 12"}) << "x 5 -> 2.5, a = 7, center 5 - 1.75 = 3.25";
  EXPECT_EQ(step(16), Log{}) << "x 2.5 -> 1.25, a = 2.5";
  EXPECT_EQ(step(32), Log{"push 3.75 of 48 and pull"}) << "a = 3.75, center 3.25 - 0.9375 = 2.3125";
  EXPECT_EQ(step(64), Log{}) << "x 2.3125 -> 1.15625, a = 2.3125";
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(), Log{"push 2.3125 of 64"}) << "what was not sent is";
  EXPECT_EQ(f.asked_at, (std::vector<float>{8, 4, 2, 5, 2.5, 1.25, 2.3125}));
}

TEST(AccruedGradientTest, WithPeriodsOfOneEveryStepIsOneExchange) {
  FakeParameters parameters(8, 0.5f);
  AccruedGradient algorithm(Config(1, 1), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(algorithm.Run({10, 0}, f).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 8 of 10 and pull", "push 4 of 10 and pull",
                                       "push 2 of 10 and pull"}));
}

TEST(AccruedGradientTest, WithoutALocalRateGradientsAreTakenWhereTheWeightsWereFetched) {
  FakeParameters parameters(8, 0.5f);
  AccruedGradient algorithm(Config(3, 3), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  EXPECT_EQ(f.asked_at, (std::vector<float>{8, 8, 8}));
  EXPECT_EQ(parameters.TakeLog().back(), "push 24 of 3 and pull");
}

TEST(AccruedGradientTest, StepWithoutSamplesTakesNoGradientAndIsPushedAsNothing) {
  FakeParameters parameters(8, 0.5f);
  AccruedGradient algorithm(Config(1, 1), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Run({4, 0}, f).ok());
  ASSERT_TRUE(algorithm.Run({0, 0}, f).ok());
  ASSERT_TRUE(algorithm.Run({4, 0}, f).ok());
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 8 of 4 and pull", "push 0 of 0 and pull",
                                       "push 4 of 4 and pull"}));
  EXPECT_EQ(f.asked_at.size(), 2u);
}

TEST(AccruedGradientTest, StepsWithoutSamplesWithinAPeriodAddNothing) {
  FakeParameters parameters(8, 0);
  AccruedGradient algorithm(Config(3, 3), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (uint32_t samples : {0, 5, 0, 5, 0, 5, 0, 0, 0}) ASSERT_TRUE(algorithm.Run({samples, 0}, f).ok());
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 8 of 5 and pull", "push 16 of 10 and pull",
                                       "push 0 of 0 and pull"}));
}

TEST(AccruedGradientTest, FinishSendsNothingTwice) {
  FakeParameters parameters(8, 0);
  AccruedGradient algorithm(Config(2, 2), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 16 of 2 and pull"}));
}

TEST(AccruedGradientTest, CountsWhatBefellItsContributions) {
  FakeParameters parameters(8, 0);
  AccruedGradient algorithm(Config(1, 1), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (const Parameters::Outcome& outcome :
       {Parameters::Outcome{0, true, false}, Parameters::Outcome{0, false, true}, Parameters::Outcome{3}}) {
    parameters.AnswerWith(outcome);
    ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  }
  EXPECT_EQ(algorithm.counts().late, 1u);
  EXPECT_EQ(algorithm.counts().non_finite, 1u);
}

TEST(AccruedGradientTest, ErrorsOfTheServersEndTheStep) {
  FakeParameters parameters(8, 0);
  AccruedGradient algorithm(Config(1, 1), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  parameters.FailWith(absl::UnavailableError("gone"));
  EXPECT_EQ(algorithm.Run({1, 0}, f).message(), "gone");
  EXPECT_EQ(AccruedGradient(Config(1, 1), 1, &parameters).Start(0).message(), "gone");
}

}  // namespace
}  // namespace catchment
