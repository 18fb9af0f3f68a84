#include "worker/algorithms/accrued_gradient.h"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/layers.h"
#include "tests/worker/algorithms/fake_parameters.h"

namespace catchment {
namespace {

// A center of one value that SGD moves at once, and what was done to it.
class Center final : public FakeParameters {
 public:
  Center(float center, float learning_rate) : center_(center), learning_rate_(learning_rate) {}

  std::vector<std::string> TakeLog() { return std::exchange(log_, {}); }
  void FailWith(absl::Status error) { error_ = std::move(error); }
  void AnswerWith(Outcome outcome) { outcome_ = outcome; }

 private:
  absl::StatusOr<Outcome> CarryOut(const Operation& operation) override {
    CHECK_NE(operation.kind, Operation::kExchange);
    const bool push = operation.kind != Operation::kPull;
    std::string line = push ? "" : absl::StrCat("pull ", operation.min_version);
    if (push) line = absl::StrCat("push ", operation.input[0], " of ", operation.samples);
    if (operation.kind == Operation::kPushPull) line += " and pull";
    log_.push_back(line);
    if (!error_.ok()) return error_;
    if (push) center_ -= learning_rate_ * operation.input[0];
    if (!operation.output.empty()) operation.output[0] = center_;
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

// The factors of up to six parameters without groups.
RateFactors One() { return RateFactors({}, nullptr, 6); }

// f(x) = x^2 / 2, noting where the gradient is asked for.
struct Quadratic {
  mutable std::vector<float> asked_at;
  void operator()(absl::Span<const float> x, absl::Span<float> g, PassObserver* observer) const {
    observer->BeforeForward({0, 1});
    asked_at.push_back(x[0]);
    g[0] = x[0];
    observer->AfterBackward({0, 1});
  }
};

using Log = std::vector<std::string>;

// n_push 2, n_fetch 3, eta_local 1/2, and a server with eta 1/4; every number worked out by hand.
void FollowDownpour(const ModelMemory& memory) {
  Center parameters(8, 0.25f);
  AccruedGradient algorithm(Config(2, 3, 0.5f), One(), 1, &parameters, memory);
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
TEST(AccruedGradientTest, FollowsDownpoursPeriodsStepByStep) { FollowDownpour({}); }
TEST(AccruedGradientTest, FollowsThemInTheModelsMemory) {
  std::vector<float> weights(1), gradient(1);
  FollowDownpour({.weights = absl::MakeSpan(weights), .gradient = absl::MakeSpan(gradient)});
  EXPECT_EQ(weights[0], 1.15625f);
  EXPECT_EQ(gradient[0], 3.75f - 2.5f) << "the last one that was added to others";
}

TEST(AccruedGradientTest, LeavesNoCopyOfAGradientThatIsInTheModelsMemory) {
  Center parameters(8, 0.5f);
  std::vector<float> weights(1), gradient(1);
  AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters,
                            {.weights = absl::MakeSpan(weights), .gradient = absl::MakeSpan(gradient)});
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (int i = 0; i < 3; ++i) {
    const auto f = [&](absl::Span<const float> x, absl::Span<float> g, PassObserver* observer) {
      EXPECT_EQ(x.data(), weights.data());
      EXPECT_EQ(g.data(), gradient.data());
      Quadratic()(x, g, observer);
    };
    ASSERT_TRUE(algorithm.Run({10, 0}, f).ok());
  }
  ASSERT_TRUE(algorithm.Settle().ok());
  EXPECT_EQ(weights[0], 1);
}

TEST(AccruedGradientTest, WithPeriodsOfOneEveryStepIsOneExchange) {
  Center parameters(8, 0.5f);
  AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(algorithm.Run({10, 0}, f).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(),
            (Log{"pull 0", "push 8 of 10 and pull", "push 4 of 10 and pull", "push 2 of 10 and pull"}));
}

TEST(AccruedGradientTest, WithoutALocalRateGradientsAreTakenWhereTheWeightsWereFetched) {
  Center parameters(8, 0.5f);
  AccruedGradient algorithm(Config(3, 3), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  EXPECT_EQ(f.asked_at, (std::vector<float>{8, 8, 8}));
  EXPECT_EQ(parameters.TakeLog().back(), "push 24 of 3 and pull");
}

// Steps of 1, 3, 0 and 4 samples, then the rest at the end; every number worked out by hand.
TEST(AccruedGradientTest, MeanIsOverTheSamplesOfItsSteps) {
  Center parameters(8, 0.25f);
  v1::AccruedGradient config = Config(4, 4, 0.5f);
  config.set_mean(true);
  AccruedGradient algorithm(config, One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (uint32_t samples : {1, 3, 0, 4, 2, 2}) ASSERT_TRUE(algorithm.Run({samples, 0}, f).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(f.asked_at, (std::vector<float>{8, 4, 2, 7.125, 3.5625}));
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 3.5 of 8 and pull", "push 5.34375 of 4"}))
      << "(1 * 8 + 3 * 4 + 4 * 2) / 8, center 8 - 3.5 / 4; (2 * 7.125 + 2 * 3.5625) / 4";
}

TEST(AccruedGradientTest, StepWithoutSamplesTakesNoGradientAndIsPushedAsNothing) {
  Center parameters(8, 0.5f);
  AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Run({4, 0}, f).ok());
  ASSERT_TRUE(algorithm.Run({0, 0}, f).ok());
  ASSERT_TRUE(algorithm.Run({4, 0}, f).ok());
  EXPECT_EQ(parameters.TakeLog(),
            (Log{"pull 0", "push 8 of 4 and pull", "push 0 of 0 and pull", "push 4 of 4 and pull"}));
  EXPECT_EQ(f.asked_at.size(), 2u);
}

TEST(AccruedGradientTest, StepsWithoutSamplesWithinAPeriodAddNothing) {
  Center parameters(8, 0);
  AccruedGradient algorithm(Config(3, 3), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (uint32_t samples : {0, 5, 0, 5, 0, 5, 0, 0, 0}) ASSERT_TRUE(algorithm.Run({samples, 0}, f).ok());
  EXPECT_EQ(parameters.TakeLog(),
            (Log{"pull 0", "push 8 of 5 and pull", "push 16 of 10 and pull", "push 0 of 0 and pull"}));
}

TEST(AccruedGradientTest, FinishSendsNothingTwice) {
  Center parameters(8, 0);
  AccruedGradient algorithm(Config(2, 2), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(), (Log{"pull 0", "push 16 of 2 and pull"}));
  ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm.Finish().ok());
  EXPECT_EQ(parameters.TakeLog(), Log{"push 8 of 1"}) << "half a period, once";
}

TEST(AccruedGradientTest, CountsTheOutcomesOfItsContributions) {
  Center parameters(8, 0);
  AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  for (const Parameters::Outcome& outcome :
       {Parameters::Outcome{0, true, false}, Parameters::Outcome{0, false, true}, Parameters::Outcome{3}}) {
    parameters.AnswerWith(outcome);
    ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
    ASSERT_TRUE(algorithm.Settle().ok());
  }
  EXPECT_EQ(algorithm.counts().late, 1u);
  EXPECT_EQ(algorithm.counts().non_finite, 1u);
}

TEST(AccruedGradientTest, ErrorsOfTheServersEndTheStep) {
  Center parameters(8, 0);
  AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters);
  Quadratic f;
  ASSERT_TRUE(algorithm.Start(0).ok());
  parameters.FailWith(absl::UnavailableError("gone"));
  ASSERT_TRUE(algorithm.Run({1, 0}, f).ok()) << "it may be on its way still";
  EXPECT_EQ(algorithm.Run({1, 0}, f).message(), "gone");
  EXPECT_FALSE(algorithm.in_flight());
  EXPECT_TRUE(algorithm.Settle().ok()) << "an error is reported once";
  parameters.FailWith(absl::OkStatus());
  EXPECT_TRUE(algorithm.Run({1, 0}, f).ok());
  EXPECT_TRUE(algorithm.Settle().ok());
  parameters.FailWith(absl::UnavailableError("gone"));
  EXPECT_EQ(AccruedGradient(Config(1, 1), One(), 1, &parameters).Start(0).message(), "gone");
}

TEST(AccruedGradientTest, ErrorOfTheLastPushIsReturnedBySettleAndByFinish) {
  for (const bool finish : {false, true}) {
    Center parameters(8, 0);
    AccruedGradient algorithm(Config(1, 1), One(), 1, &parameters);
    Quadratic f;
    ASSERT_TRUE(algorithm.Start(0).ok());
    parameters.FailWith(absl::UnavailableError("gone"));
    ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
    EXPECT_TRUE(algorithm.in_flight());
    EXPECT_EQ((finish ? algorithm.Finish() : algorithm.Settle()).message(), "gone");
  }
}

TEST(AccruedGradientTest, FinishCountsTheOutcomeOfItsPush) {
  for (const bool fails : {false, true}) {
    Center parameters(8, 0);
    AccruedGradient algorithm(Config(2, 2), One(), 1, &parameters);
    Quadratic f;
    ASSERT_TRUE(algorithm.Start(0).ok());
    ASSERT_TRUE(algorithm.Run({1, 0}, f).ok());
    if (fails) parameters.FailWith(absl::UnavailableError("gone"));
    parameters.AnswerWith({0, true, false});
    EXPECT_EQ(algorithm.Finish().message(), fails ? "gone" : "");
    EXPECT_EQ(algorithm.counts().late, fails ? 0u : 1u);
  }
}

// Gradients of 8 at a clip_norm of 10: one is short enough, a sum of two is not.
TEST(AccruedGradientTest, ClipsTheSumThatIsPushed) {
  const auto pushed = [](uint32_t period, const std::vector<uint32_t>& steps) {
    Center parameters(8, 0);
    AccruedGradient algorithm(Config(period, period), One(), 1, &parameters, ModelMemory(), 10.0f);
    Quadratic f;
    EXPECT_TRUE(algorithm.Start(0).ok());
    for (uint32_t samples : steps) EXPECT_TRUE(algorithm.Run({samples, 0}, f).ok());
    EXPECT_TRUE(algorithm.Finish().ok());
    return parameters.TakeLog().back();
  };
  EXPECT_EQ(pushed(1, {4}), "push 8 of 4 and pull");
  EXPECT_EQ(pushed(2, {4, 4}), "push 10 of 8 and pull");
  EXPECT_EQ(pushed(3, {4, 4, 0}), "push 10 of 8 and pull") << "where the last step has no samples";
  EXPECT_EQ(pushed(3, {4, 4}), "push 10 of 8") << "where the last round is shorter";
}

// ------------------------------------------------------------------------------------- under the computation

// A center that answers with what it was sent.
class Echo final : public FakeParameters {
  absl::StatusOr<Outcome> CarryOut(const Operation& operation) override {
    for (size_t i = 0; i < operation.output.size(); ++i) {
      operation.output[i] = operation.input.empty() ? 1 : operation.input[i];
    }
    return Outcome();
  }
};

void Double(absl::Span<const float> x, absl::Span<float> g) {
  for (size_t i = 0; i < x.size(); ++i) g[i] = 2 * x[i];
}

TEST(AccruedGradientTest, LayersAreSentFromTheLastAndAwaitedFromTheFirst) {
  Echo parameters;
  AccruedGradient algorithm(Config(1, 1), One(), 6, &parameters);
  const auto gradient = InLayers(Double);
  ASSERT_TRUE(algorithm.Start(0).ok());
  parameters.TakeEvents();
  ASSERT_TRUE(algorithm.Run({1, 0}, gradient).ok());
  const Log leaving = {"start", "ready 4-6", "ready 2-4", "ready 0-2"};
  EXPECT_EQ(parameters.TakeEvents(), leaving);
  EXPECT_TRUE(algorithm.in_flight());
  ASSERT_TRUE(algorithm.Run({1, 0}, gradient).ok());
  Log all = {"await 0-2", "await 2-4", "await 4-6", "finish"};
  all.insert(all.end(), leaving.begin(), leaving.end());
  EXPECT_EQ(parameters.TakeEvents(), all);
  ASSERT_TRUE(algorithm.Settle().ok());
  EXPECT_EQ(parameters.TakeEvents(), Log{"finish"});
  EXPECT_FALSE(algorithm.in_flight());
}

TEST(AccruedGradientTest, NothingLeavesBeforeTheNormIsKnown) {
  Echo parameters;
  AccruedGradient algorithm(Config(1, 1), One(), 6, &parameters, ModelMemory(), 1.0f);
  ASSERT_TRUE(algorithm.Start(0).ok());
  parameters.TakeEvents();
  for (int step = 0; step < 2; ++step) {
    ASSERT_TRUE(algorithm.Run({1, 0}, InLayers(Double)).ok());
    const Log events = parameters.TakeEvents();
    EXPECT_EQ(events.back(), "ready 0-6");
    EXPECT_EQ(events[events.size() - 2], "start");
  }
  ASSERT_TRUE(algorithm.Settle().ok());
}

TEST(AccruedGradientTest, StepWithoutSamplesSettlesWhatIsUnderWayFirst) {
  Echo parameters;
  AccruedGradient algorithm(Config(1, 1), One(), 6, &parameters);
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Run({1, 0}, InLayers(Double)).ok());
  parameters.TakeEvents();
  ASSERT_TRUE(algorithm.Run({0, 0}, InLayers(Double)).ok());
  EXPECT_EQ(parameters.TakeEvents(), (Log{"finish", "start", "ready 0-6"}));
  ASSERT_TRUE(algorithm.Settle().ok());
}

TEST(AccruedGradientTest, PullAloneBeginsAfterThePassThatReadsTheWeights) {
  Echo parameters;
  AccruedGradient algorithm(Config(2, 1), One(), 6, &parameters);
  ASSERT_TRUE(algorithm.Start(0).ok());
  parameters.TakeEvents();
  bool in_pass = false;
  const auto gradient = InLayers([&](absl::Span<const float> x, absl::Span<float> g) {
    in_pass = parameters.in_flight();
    Double(x, g);
  });
  ASSERT_TRUE(algorithm.Run({1, 0}, gradient).ok());
  EXPECT_FALSE(in_pass);
  EXPECT_EQ(parameters.TakeEvents(), Log{"start"});
  ASSERT_TRUE(algorithm.Settle().ok());
}

TEST(AccruedGradientTest, PushAloneIsSettledBeforeItsMemoryIsWrittenAgain) {
  Echo parameters;
  AccruedGradient algorithm(Config(1, 3), One(), 6, &parameters);
  ASSERT_TRUE(algorithm.Start(0).ok());
  ASSERT_TRUE(algorithm.Run({1, 0}, InLayers(Double)).ok());
  parameters.TakeEvents();
  Log before_backward;
  const auto gradient = InLayers([&](absl::Span<const float> x, absl::Span<float> g) {
    before_backward = parameters.TakeEvents();
    Double(x, g);
  });
  ASSERT_TRUE(algorithm.Run({1, 0}, gradient).ok());
  EXPECT_EQ(before_backward, (Log{"await 0-2", "await 2-4", "await 4-6", "finish", "start"}));
  ASSERT_TRUE(algorithm.Settle().ok());
}

}  // namespace
}  // namespace catchment
