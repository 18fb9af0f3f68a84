#include "worker/algorithms/look_ahead_momentum.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/worker/algorithms/quadratics.h"
#include "tests/worker/algorithms/sgd_center.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

// The paper's rule alone, without the preset's bound of the step.
v1::Job MakeJob(double momentum, const std::string& more = "", int workers = 1) {
  return PresetJob("dana", workers,
                   "algorithm { contribution { look_ahead { momentum: " + std::to_string(momentum) +
                       " } } compensation { none {} } } " + more);
}

TEST(LookAheadMomentumTest, FollowsThePaperStepByStep) {
  SgdCenter center({8}, 0.25f);
  const auto algorithm = MakeAlgorithm(MakeJob(0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (uint32_t samples : {1, 2, 4}) ASSERT_TRUE(algorithm->Run({samples, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // g 8, v 8; x 5. g 5, v 9; x 2.625. g 2.625, v 7.125; x 1.078125.
  EXPECT_EQ(center.pushed, (std::vector<float>{12, 9.5, 6.1875}));
  EXPECT_EQ(center.samples, (std::vector<uint32_t>{1, 2, 4}));
  EXPECT_EQ(center.weights, (std::vector<float>{1.078125}));
}

TEST(LookAheadMomentumTest, LayersLeaveWithinTheBackwardPass) {
  SgdCenter center(std::vector<float>(6, 1.0f), 0.5f);
  const auto algorithm = MakeAlgorithm(MakeJob(0.5), 6, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  center.TakeEvents();
  ASSERT_TRUE(algorithm->Run({1, 0}, Quadratic()).ok());
  EXPECT_EQ(center.TakeEvents(), (std::vector<std::string>{"start", "ready 4-6", "ready 2-4", "ready 0-2"}));
  ASSERT_TRUE(algorithm->Settle().ok());
  EXPECT_EQ(center.weights, std::vector<float>(6, 0.25f));
}

TEST(LookAheadMomentumTest, StepWithoutSamplesPushesNothingAndLeavesTheMomentum) {
  SgdCenter center({8}, 0.25f);
  const auto algorithm = MakeAlgorithm(MakeJob(0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (uint32_t samples : {1, 0, 1}) ASSERT_TRUE(algorithm->Run({samples, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(center.pushed, (std::vector<float>{12, 0, 9.5}));
  EXPECT_EQ(center.samples, (std::vector<uint32_t>{1, 0, 1}));
}

TEST(LookAheadMomentumTest, MomentumBeginsAgainAfterAGradientThatWasNotFinite) {
  SgdCenter center({8}, 0.25f);
  const auto algorithm = MakeAlgorithm(MakeJob(0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, Quadratic()).ok());
  const auto nan = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = std::nanf(""); });
  ASSERT_TRUE(algorithm->Run({1, 0}, nan).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(algorithm->counts().non_finite, 1u);
  EXPECT_EQ(center.pushed.back(), 7.5f) << "at 5: v is 5, and not 4 more or a NaN";
}

TEST(LookAheadMomentumTest, GradientsAreClippedBeforeTheMomentumAndLeaveTogether) {
  // 6 coordinates of 1: the norm is sqrt(6), and clipped to half of that every coordinate is 0.5.
  SgdCenter center(std::vector<float>(6, 1.0f), 0);
  const auto job = MakeJob(0.5, "optimizer { clip_norm: " + std::to_string(std::sqrt(6.0) / 2) + " }");
  const auto algorithm = MakeAlgorithm(job, 6, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  center.TakeEvents();
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(algorithm->Run({1, 0}, Quadratic()).ok());
    ASSERT_TRUE(algorithm->Settle().ok());
    EXPECT_EQ(center.TakeEvents(), (std::vector<std::string>{"start", "ready 0-6", "finish"}));
  }
  // v 0.5, then 0.75.
  EXPECT_NEAR(center.pushed[0], 0.75, 1e-6);
  EXPECT_NEAR(center.pushed[1], 0.875, 1e-6);
}

// Asynchronous workers in turns, each with a momentum of its own, by the paper's lines in double precision.
TEST(LookAheadMomentumTest, WorkersKeepTheirOwnMomentum) {
  constexpr int kWorkers = 3, kSteps = 30;
  constexpr double kEta = 0.05, kMu = 0.8;
  const v1::Job job = MakeJob(kMu, "optimizer { learning_rate: 0.05 }", kWorkers);
  const std::vector<float> trained = TrainInTurns(job, kSteps, {1, 1, 1});
  for (int k = 0; k < kValues; ++k) {
    double center = Initial()[k];
    std::vector<double> x(kWorkers, center), v(kWorkers, 0.0);
    for (int t = 0; t < kSteps; ++t) {
      for (int i = 0; i < kWorkers; ++i) {
        const double g = x[i] - Target(i, k);
        v[i] = kMu * v[i] + g;
        center -= kEta * (g + kMu * v[i]);
        x[i] = center;
      }
    }
    EXPECT_NEAR(trained[k], center, 2e-5) << "coordinate " << k;
  }
}

}  // namespace
}  // namespace catchment
