#include "worker/algorithms/energy_matching.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/jobs.h"
#include "tests/worker/algorithms/quadratics.h"
#include "tests/worker/algorithms/sgd_center.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

// The paper's rule alone, without the preset's bound of the step.
v1::Job MakeJob(double eta, double mu, double kappa = 1, int workers = 1, const std::string& more = "") {
  return PresetJob("gem", workers,
                   "algorithm { contribution { energy_matching { learning_rate: " + std::to_string(eta) +
                       " momentum: " + std::to_string(mu) + " energy: " + std::to_string(kappa) +
                       " } } compensation { none {} } } " + more);
}

void ExpectNear(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], expected[i], 1e-6) << "step " << i;
}

// eta 1/4, mu 1/2. u -2, m -2, c 0: moves by 2 - 0. At 6: u -1.5, m -2.5, c -2: 2.5 - 2. At 5.5: u -1.375, m
// -2.625, c -0.5: 2.125. At 3.375: u -0.84375, m -2.15625, c -2.125: 0.03125.
TEST(EnergyMatchingTest, LoneWorkerFollowsThePaperStepByStep) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (int i = 0; i < 4; ++i) ASSERT_TRUE(algorithm->Run({5, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  ExpectNear(center.pushed, {2, 0.5, 2.125, 0.03125});
  EXPECT_NEAR(center.weights[0], 3.34375, 1e-6);
  EXPECT_EQ(center.samples, (std::vector<uint32_t>{5, 5, 5, 5}));
}

TEST(EnergyMatchingTest, EnergyScalesTheProxy) {
  SgdCenter center({8}, 1);
  const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0.5, /*kappa=*/1.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, Quadratic()).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  ExpectNear(center.pushed, {3});
}

TEST(EnergyMatchingTest, WhatOthersHaveMovedIsLeftOutAndNothingGoesBack) {
  for (const float moved : {1.0f, -1.0f, 3.0f, -3.0f}) {
    SgdCenter center({8}, 0);
    const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0), 1, &center);
    ASSERT_TRUE(algorithm->Start(0).ok());
    ASSERT_TRUE(algorithm->Run({1, 0}, Constant(0)).ok());
    ASSERT_TRUE(algorithm->Settle().ok());
    center.weights[0] += moved;
    ASSERT_TRUE(algorithm->Run({1, 0}, Constant(0)).ok());
    // The answer to the last push had the move in it, in either direction.
    ASSERT_TRUE(algorithm->Run({1, 0}, Constant(8)).ok());
    ASSERT_TRUE(algorithm->Finish().ok());
    EXPECT_NEAR(center.pushed[2], std::max(0.0f, 2 - std::fabs(moved)), 1e-6) << moved;
  }
}

TEST(EnergyMatchingTest, NoGradientIsEnlargedMoreThanFiveTimes) {
  SgdCenter center({8}, 0);
  const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (const float g : {8.0f, -0.5f, 0.0f}) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(g)).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // m -2; then -0.875, seven times u; then -0.4375, and no u.
  ExpectNear(center.pushed, {2, -0.625, 0});
}

TEST(EnergyMatchingTest, GradientThatIsNearlyNothingIsDividedByALittleMore) {
  SgdCenter center({8}, 0);
  const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, Constant(4e-16f)).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // u and m are -1e-16: pi is 1e-16 / (1e-16 + 1e-16).
  EXPECT_FLOAT_EQ(center.pushed[0], 0.5e-16f);
}

// The servers' learning rate is scaled by the schedule, so that what the center moves by follows it, and what
// is pushed has the factor pi alone.
TEST(EnergyMatchingTest, ScheduleScalesTheProxyAndIsLeftToTheServersForThePush) {
  SgdCenter center({8}, 0);
  const auto job = MakeJob(0.25, 0.5, 1, 1, "optimizer { schedule { decay: COSINE } }");
  const auto algorithm = MakeAlgorithm(job, 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, Constant(8)).ok());
  ASSERT_TRUE(algorithm->Run({1, 0.5}, Constant(8)).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // m -2; then -1 - 1 = -2, twice u = -1: pi is 2.
  ExpectNear(center.pushed, {2, 4});
}

TEST(EnergyMatchingTest, ProxyBeginsAgainAfterAGradientThatWasNotFinite) {
  SgdCenter center({8}, 0);
  const auto algorithm = MakeAlgorithm(MakeJob(0.25, 0.5), 1, &center);
  ASSERT_TRUE(algorithm->Start(0).ok());
  for (const float g : {8.0f, std::nanf(""), 8.0f}) ASSERT_TRUE(algorithm->Run({1, 0}, Constant(g)).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(algorithm->counts().non_finite, 1u);
  EXPECT_TRUE(std::isnan(center.pushed[1])) << "for the servers to refuse";
  EXPECT_NEAR(center.pushed[2], 2, 1e-6);
}

// Asynchronous workers in turns, by the paper's lines in double precision.
TEST(EnergyMatchingTest, WorkersFollowThePaperStepByStep) {
  constexpr int kWorkers = 3, kSteps = 20;
  constexpr double kEta = 0.0625, kMu = 0.75;
  const std::vector<float> trained = TrainInTurns(MakeJob(kEta, kMu, 1, kWorkers), kSteps, {1, 1, 1});
  for (int k = 0; k < kValues; ++k) {
    double center = Initial()[k];
    std::vector<double> x(kWorkers, center), before(kWorkers, center), m(kWorkers, 0.0);
    for (int t = 0; t < kSteps; ++t) {
      for (int i = 0; i < kWorkers; ++i) {
        const double u = -kEta * (x[i] - Target(i, k));
        m[i] = kMu * m[i] + u;
        const double room = std::fabs(m[i]) - std::fabs(x[i] - before[i]);
        const double move = std::min(std::max(room, 0.0), 5 * std::fabs(u));
        center += u > 0 ? move : -move;
        before[i] = x[i];
        x[i] = center;
      }
    }
    EXPECT_NEAR(trained[k], center, 1e-4) << "coordinate " << k;
  }
}

}  // namespace
}  // namespace catchment
