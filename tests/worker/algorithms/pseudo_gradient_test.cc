#include "worker/algorithms/pseudo_gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/conformance/jobs.h"
#include "tests/worker/algorithms/quadratics.h"
#include "tests/worker/algorithms/sgd_center.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

// `local`, `optimizer`: fields of the workers' and of the servers' optimizer. Learning rates are constant
// unless they say otherwise.
v1::Job MakeJob(int local_steps, const std::string& local, const std::string& optimizer = "", int workers = 1,
                const std::string& consistency = "synchronous {}") {
  const bool has_schedule = local.find("schedule") != std::string::npos;
  return PresetJob("local_sgd", workers,
                   "algorithm { consistency { " + consistency +
                       " } contribution { pseudo_gradient { local_steps: " + std::to_string(local_steps) +
                       " local_optimizer { " + local + (has_schedule ? "" : " schedule { decay: CONSTANT }") +
                       " } } } } optimizer { " + optimizer + " }");
}

constexpr char kSgd[] = "learning_rate: 0.5 momentum: 0";
constexpr char kMomentum[] = "learning_rate: 0.5 momentum: 0.5";

using Values = std::vector<float>;
using Samples = std::vector<uint32_t>;

TEST(PseudoGradientTest, PushesWhatARoundHasTakenFromTheWeightsAndGoesOnFromTheCenters) {
  SgdCenter center({8}, 0.5f);
  const auto algorithm = MakeAlgorithm(MakeJob(2, kSgd), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (uint32_t samples : {1, 2, 4, 8}) ASSERT_TRUE(algorithm->Run({samples, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // x 8, 4, 2: D is 6, and the center goes to 5. x 5, 2.5, 1.25: D is 3.75.
  EXPECT_EQ(center.pushed, (Values{6, 3.75}));
  EXPECT_EQ(center.samples, (Samples{3, 12})) << "each sample once";
  EXPECT_EQ(center.weights, (Values{3.125}));
}

TEST(PseudoGradientTest, LocalOptimizerKeepsItsStateFromRoundToRound) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(2, kMomentum), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(4)).ok());
  // v 4, 6; then 7, 7.5.
  EXPECT_EQ(center.pushed, (Values{5, 7.25}));
}

TEST(PseudoGradientTest, LastShorterRoundIsPushedAtTheEndAndOnce) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(3, kSgd), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(algorithm->Run({7, 0}, Constant(2)).ok());
  EXPECT_EQ(center.pushed, (Values{3}));
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(center.pushed, (Values{3, 1}));
  EXPECT_EQ(center.samples, (Samples{21, 7}));
  EXPECT_EQ(center.steps, (std::vector<uint64_t>{3, 4}));
}

// Calls the worker before these of its questions.
class CallingCenter final : public SgdCenter {
 public:
  using SgdCenter::SgdCenter;
  bool Called(int /*fragment*/) override {
    EXPECT_FALSE(in_flight());
    return calls.count(++asked_) > 0;
  }
  std::set<int> calls;

 private:
  int asked_ = 0;
};

TEST(PseudoGradientTest, CalledWorkerSendsWhatItHasAtTheEndOfItsStep) {
  CallingCenter center({8}, 1);
  center.calls = {1, 4};
  const auto algorithm = MakeAlgorithm(MakeJob(4, kSgd), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (int i = 0; i < 9; ++i) ASSERT_TRUE(algorithm->Run({7, 0}, Constant(2)).ok());
  EXPECT_EQ(center.pushed, (Values{1, 3, 4})) << "of 1, 3 and all 4 steps";
  EXPECT_EQ(center.samples, (Samples{7, 21, 28}));
  EXPECT_EQ(center.steps, (std::vector<uint64_t>{1, 4, 8}));
}

TEST(PseudoGradientTest, RoundHasTheStepsThatTheMasterHasSet) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(3, kSgd), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  // The number may change within a round, also below the steps that were made.
  for (const uint32_t local_steps : {2, 2, 3, 1, 1, 0, 0, 0}) {
    ASSERT_TRUE(algorithm->Run({1, 0, local_steps}, Constant(2)).ok());
  }
  EXPECT_EQ(center.pushed, (Values{2, 2, 1, 3}));
  EXPECT_EQ(center.steps, (std::vector<uint64_t>{2, 4, 5, 8}));
}

TEST(PseudoGradientTest, NothingIsPushedWithoutAStepOrAfterAWholeRound) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(1, kSgd), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(center.pushed, Values{});
  ASSERT_TRUE(algorithm->Run({7, 0}, Constant(2)).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(center.pushed, (Values{1}));
}

TEST(PseudoGradientTest, StepsWithoutSamplesCountForTheRoundAndMoveNothing) {
  SgdCenter center({8}, 0);
  const auto algorithm = MakeAlgorithm(MakeJob(3, kMomentum), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (uint32_t samples : {5, 0, 6, 0, 0, 0, 0, 5, 0}) {
    ASSERT_TRUE(algorithm->Run({samples, 0}, samples > 0 ? Constant(4) : Constant(std::nanf(""))).ok());
  }
  ASSERT_TRUE(algorithm->Finish().ok());
  // v 4, 6; in the last round 7.
  EXPECT_EQ(center.pushed, (Values{5, 0, 3.5}));
  EXPECT_EQ(center.samples, (Samples{11, 0, 5})) << "a round of no samples takes no part in the average";
}

TEST(PseudoGradientTest, WorkerThatIsNoLongerFiniteBeginsAgainFromTheCenterWithANewOptimizer) {
  for (const char* local : {kMomentum, "kind: ADAM learning_rate: 0.5"}) {
    SgdCenter center({8}, 0);
    const auto algorithm = MakeAlgorithm(MakeJob(2, local), 1, &center);
    ASSERT_TRUE(algorithm->Start(0).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(4)).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(std::nanf(""))).ok());
    for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(4)).ok());
    EXPECT_EQ(algorithm->counts().non_finite, 1u);
    EXPECT_TRUE(std::isnan(center.pushed[1]));
    EXPECT_EQ(center.pushed[2], center.pushed[0]) << local;
  }
}

TEST(PseudoGradientTest, LocalLearningRateFollowsTheJobsProgress) {
  SgdCenter center({8}, 0);
  const auto algorithm =
      MakeAlgorithm(MakeJob(1, absl::StrCat(kSgd, " schedule { decay: COSINE }")), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (double progress : {0.0, 0.5, 1.0}) ASSERT_TRUE(algorithm->Run({1, progress}, Constant(4)).ok());
  EXPECT_EQ(center.pushed[0], 2);
  EXPECT_EQ(center.pushed[1], 1);
  EXPECT_NEAR(center.pushed[2], 0, 1e-6);
}

TEST(PseudoGradientTest, LocalScheduleCyclesTheMomentum) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(
      MakeJob(
          1,
          "learning_rate: 1 momentum: 0.5 schedule { decay: ONE_CYCLE pct_start: 0.5 initial_lr_fraction: 1 "
          "final_fraction: 1 min_momentum: 0 }"),
      1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (const double progress : {0.0, 0.25, 0.5, 0.75})
    ASSERT_TRUE(algorithm->Run({1, progress}, Constant(4)).ok());
  // Momentum is 0.5, 0.25, 0, 0.25.
  ASSERT_EQ(center.pushed.size(), 4u);
  const Values expected = {4, 5, 4, 5};
  for (int i = 0; i < 4; ++i) EXPECT_NEAR(center.pushed[i], expected[i], 1e-5) << i;
}

TEST(PseudoGradientTest, ClipsGradientsByTheLocalOptimizersNormAndTheMoveByTheServers) {
  const auto pushed = [](const std::string& local, const std::string& optimizer) {
    // Four coordinates: a gradient of 3 in each has norm 6.
    SgdCenter center({8, 8, 8, 8}, 0);
    const auto algorithm = MakeAlgorithm(MakeJob(2, absl::StrCat(kSgd, local), optimizer), 4, &center);
    EXPECT_TRUE(algorithm->Start(0).ok());
    for (int i = 0; i < 2; ++i) EXPECT_TRUE(algorithm->Run({1, 0}, Constant(3)).ok());
    return center.pushed[0];
  };
  EXPECT_EQ(pushed("", ""), 3);
  EXPECT_NEAR(pushed(" clip_norm: 2", ""), 1, 1e-6);
  EXPECT_NEAR(pushed("", "clip_norm: 1"), 0.5, 1e-6);
  EXPECT_NEAR(pushed(" clip_norm: 2", "clip_norm: 3"), 1, 1e-6) << "D has norm 2";
}

TEST(PseudoGradientTest, ErrorsOfTheServersEndTheStep) {
  class Gone final : public FakeParameters {
    absl::StatusOr<Outcome> CarryOut(const Operation&) override { return absl::UnavailableError("gone"); }
  } gone;
  const auto algorithm = MakeAlgorithm(MakeJob(1, kSgd), 1, &gone);
  EXPECT_EQ(algorithm->Start(0).message(), "gone");
  EXPECT_EQ(algorithm->Run({1, 0}, Constant(1)).message(), "gone");
}

// --------------------------------------------------------------------------------------- several workers

constexpr int kWorkers = 3;
constexpr int kSteps = 12;
const std::vector<uint32_t> kSamples = {1, 2, 5};
constexpr double kEta = 0.05, kMu = 0.5;
constexpr char kLocal[] = "learning_rate: 0.05 momentum: 0.5";

// One coordinate of a worker, in double precision.
struct Local {
  double x, v;
  void Steps(int steps, double target) {
    for (int i = 0; i < steps; ++i) {
      v = kMu * v + (x - target);
      x -= kEta * v;
    }
  }
};

TEST(PseudoGradientTest, SynchronousLocalSgdMakesTheCenterTheMeanOfTheWorkersWeights) {
  for (int local_steps : {1, 3, 12}) {
    const auto center = TrainInTurns(MakeJob(local_steps, kLocal, "", kWorkers), kSteps, kSamples);
    for (int k = 0; k < kValues; ++k) {
      Local locals[kWorkers] = {{Initial()[k], 0}, {Initial()[k], 0}, {Initial()[k], 0}};
      double mean = 0;
      for (int round = 0; round < kSteps / local_steps; ++round) {
        mean = 0;
        for (int i = 0; i < kWorkers; ++i) {
          locals[i].Steps(local_steps, Target(i, k));
          mean += locals[i].x * kSamples[i] / 8;
        }
        for (Local& local : locals) local.x = mean;
      }
      EXPECT_NEAR(center[k], mean, 1e-5) << local_steps << " local steps, coordinate " << k;
    }
  }
}

TEST(PseudoGradientTest, SynchronousDiLoCoFollowsThePaperStepByStep) {
  constexpr int kLocalSteps = 3;
  const auto center =
      TrainInTurns(MakeJob(kLocalSteps, kLocal, "learning_rate: 0.7 momentum: 0.9 nesterov: true", kWorkers),
                   kSteps, kSamples);
  for (int k = 0; k < kValues; ++k) {
    Local locals[kWorkers] = {{Initial()[k], 0}, {Initial()[k], 0}, {Initial()[k], 0}};
    double w = Initial()[k], momentum = 0;
    for (int round = 0; round < kSteps / kLocalSteps; ++round) {
      double d = 0;
      for (int i = 0; i < kWorkers; ++i) {
        locals[i].x = w;
        locals[i].Steps(kLocalSteps, Target(i, k));
        d += (w - locals[i].x) * kSamples[i] / 8;
      }
      momentum = 0.9 * momentum + d;
      w -= 0.7 * (d + 0.9 * momentum);
    }
    EXPECT_NEAR(center[k], w, 1e-5) << "coordinate " << k;
  }
}

TEST(PseudoGradientTest, AsynchronousWorkersFollowThePaperStepByStep) {
  constexpr int kLocalSteps = 4;
  const auto center = TrainInTurns(
      MakeJob(kLocalSteps, kLocal, "learning_rate: 0.5", kWorkers, "asynchronous {}"), kSteps, kSamples);
  for (int k = 0; k < kValues; ++k) {
    Local locals[kWorkers] = {{Initial()[k], 0}, {Initial()[k], 0}, {Initial()[k], 0}};
    double w = Initial()[k];
    for (int round = 0; round < kSteps / kLocalSteps; ++round) {
      for (int i = 0; i < kWorkers; ++i) {
        const double pulled = locals[i].x;
        locals[i].Steps(kLocalSteps, Target(i, k));
        w -= 0.5 * (pulled - locals[i].x);
        locals[i].x = w;
      }
    }
    EXPECT_NEAR(center[k], w, 1e-5) << "coordinate " << k;
  }
}

}  // namespace
}  // namespace catchment
