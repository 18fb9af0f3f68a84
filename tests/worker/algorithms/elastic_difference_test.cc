#include "worker/algorithms/elastic_difference.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/worker/algorithms/fake_parameters.h"
#include "tests/worker/algorithms/quadratics.h"

namespace catchment {
namespace {

struct Setting {
  int workers = 3;
  int period = 3;
  int steps = 40;
  double eta = 0.1, delta = 0, curvature = 1;
  bool synchronous = false;
};

v1::Job MakeJob(const Setting& setting) {
  v1::Job job = PresetJob(setting.synchronous ? "easgd_sync"
                          : setting.delta > 0 ? "eamsgd"
                                              : "easgd",
                          setting.workers);
  job.mutable_optimizer()->set_learning_rate(static_cast<float>(setting.eta));
  job.mutable_optimizer()->set_momentum(static_cast<float>(setting.delta));
  job.mutable_optimizer()->set_nesterov(setting.delta > 0);
  job.mutable_algorithm()->mutable_contribution()->mutable_elastic()->set_communication_period(
      setting.period);
  return job;
}

std::vector<float> Train(const Setting& setting) {
  return TrainInTurns(MakeJob(setting), setting.steps, std::vector<uint32_t>(setting.workers, 1),
                      setting.curvature);
}

// The center by the paper's lines, one coordinate, one worker after another, in double precision. `sign` is
// that of the look-ahead; the paper's is +1.
double Reference(const Setting& setting, int k, double sign = 1) {
  const double alpha = 0.9 / setting.workers;
  double center = Initial()[k];
  std::vector<double> x(setting.workers, center), v(setting.workers, 0.0), d(setting.workers, 0.0);
  const auto exchange = [&] {
    const double before = center;
    for (int i = 0; i < setting.workers; ++i) {
      d[i] = alpha * (x[i] - (setting.synchronous ? before : center));
      center += d[i];
    }
    for (int i = 0; i < setting.workers; ++i) x[i] -= d[i];
  };
  for (int t = 0; t < setting.steps; ++t) {
    std::vector<double> g(setting.workers);
    for (int i = 0; i < setting.workers; ++i) {
      g[i] = setting.curvature * (x[i] + sign * setting.delta * v[i] - Target(i, k));
    }
    if (t % setting.period == 0) exchange();
    for (int i = 0; i < setting.workers; ++i) {
      v[i] = setting.delta * v[i] - setting.eta * g[i];
      x[i] += v[i];
    }
  }
  exchange();
  return center;
}

void ExpectAgreement(const Setting& setting) {
  const std::vector<float> center = Train(setting);
  for (int k = 0; k < kValues; ++k) EXPECT_NEAR(center[k], Reference(setting, k), 2e-5) << "coordinate " << k;
}

TEST(ElasticDifferenceTest, EasgdFollowsThePaperStepByStep) {
  for (int steps : {1, 2, 3, 4, 40}) ExpectAgreement({.steps = steps});
}
TEST(ElasticDifferenceTest, EamsgdFollowsThePaperStepByStep) {
  for (int steps : {1, 2, 3, 4, 40}) ExpectAgreement({.steps = steps, .delta = 0.9});
}
TEST(ElasticDifferenceTest, SynchronousEasgdFollowsThePaperStepByStep) {
  for (int steps : {1, 2, 3, 4, 40}) ExpectAgreement({.steps = steps, .synchronous = true});
}
TEST(ElasticDifferenceTest, SynchronousEamsgdFollowsThePaperStepByStep) {
  ExpectAgreement({.workers = 4, .period = 1, .delta = 0.5, .synchronous = true});
}
TEST(ElasticDifferenceTest, LoneWorkerFollowsThePaperStepByStep) {
  ExpectAgreement({.workers = 1, .period = 2, .delta = 0.9});
}

// A program that moves weights by itself.
class Program final : public LocalWeights {
 public:
  void MakeStep(const Setting& setting, int worker) {
    for (int k = 0; k < kValues; ++k)
      x_[k] -= static_cast<float>(setting.eta * setting.curvature * (x_[k] - Target(worker, k)));
  }
  absl::Span<float> received() override { return absl::MakeSpan(received_); }
  absl::Span<float> sent() override { return absl::MakeSpan(sent_); }
  void Restart() override { x_ = received_; }
  void Use(int) override {
    for (int k = 0; k < kValues; ++k) x_[k] -= received_[k];
  }
  absl::Status Write(int) override {
    sent_ = x_;
    return absl::OkStatus();
  }

 private:
  std::vector<float> x_ = std::vector<float>(kValues), received_ = x_, sent_ = x_;
};

TEST(ElasticDifferenceTest, AProgramThatKeepsTheWeightsFollowsThePaperStepByStep) {
  for (const bool synchronous : {false, true}) {
    const Setting setting{.synchronous = synchronous};
    const v1::Job job = MakeJob(setting);
    VirtualCluster cluster(job, Initial(), setting.workers);
    std::vector<VirtualCluster::Work> works;
    for (int worker = 0; worker < setting.workers; ++worker) {
      works.push_back([&, worker](Parameters* parameters) {
        Program program;
        const auto algorithm = MakeAlgorithm(job, kValues, parameters, {.kept = &program});
        ASSERT_TRUE(algorithm->Start(0).ok());
        const auto step = [&](absl::Span<const float> x, absl::Span<float> g, PassObserver*) {
          EXPECT_TRUE(x.empty() && g.empty());
          program.MakeStep(setting, worker);
        };
        for (int t = 0; t < setting.steps; ++t) ASSERT_TRUE(algorithm->Run({1, 0}, step).ok());
        ASSERT_TRUE(algorithm->Finish().ok());
      });
    }
    cluster.Run(works);
    for (int k = 0; k < kValues; ++k)
      EXPECT_NEAR(cluster.Weights()[k], Reference(setting, k), 2e-5) << "coordinate " << k;
  }
}

TEST(ElasticDifferenceTest, EamsgdConvergesOnAStiffQuadraticWhereAWrongLookAheadDiverges) {
  for (bool synchronous : {false, true}) {
    // One target for all, so that the center can reach it.
    const Setting setting{.workers = 1,
                          .period = 1,
                          .steps = 2000,
                          .eta = 0.1,
                          .delta = 0.9,
                          .curvature = 5,
                          .synchronous = synchronous};
    const std::vector<float> center = Train(setting);
    for (int k = 0; k < kValues; ++k) {
      EXPECT_NEAR(center[k], Target(0, k), 1e-4);
      EXPECT_GT(std::fabs(Reference(setting, k, -1) - Target(0, k)), 100) << "the reference with -delta v";
    }
  }
}

TEST(ElasticDifferenceTest, SynchronousWorkersSettleAroundTheMeanOfTheirTargets) {
  const std::vector<float> center = Train({.workers = 4, .period = 2, .steps = 2000, .synchronous = true});
  for (int k = 0; k < kValues; ++k) EXPECT_NEAR(center[k], 1.5 + 0.25 * k, 0.05);
}

// A center of 4 that stays where it is, and what it was asked.
class Center final : public FakeParameters {
 public:
  int pulls = 0;
  std::vector<float> exchanged;
  std::vector<uint32_t> samples_sent;

 private:
  absl::StatusOr<Outcome> CarryOut(const Operation& operation) override {
    if (operation.kind == Operation::kPull) {
      ++pulls;
      std::fill(operation.output.begin(), operation.output.end(), 4.0f);
      return Outcome();
    }
    CHECK_EQ(operation.kind, Operation::kExchange);
    exchanged.push_back(operation.input[0]);
    samples_sent.push_back(operation.samples);
    if (!std::isfinite(operation.input[0])) return Outcome{0, false, true};
    std::fill(operation.output.begin(), operation.output.end(), 0.0f);
    return Outcome();
  }
};

TEST(ElasticDifferenceTest, ExchangesEveryPeriodAtTheStartOfTheStepAndOnceAtTheEnd) {
  Center parameters;
  const auto algorithm = MakeAlgorithm(MakeJob({.period = 2, .eta = 1}), 1, &parameters);
  ASSERT_TRUE(algorithm->Start(0).ok());
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  for (uint32_t samples : {1, 2, 4, 8, 16}) ASSERT_TRUE(algorithm->Run({samples, 0}, one).ok());
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(parameters.exchanged, (std::vector<float>{4, 2, 0, -1}));
  EXPECT_EQ(parameters.samples_sent, (std::vector<uint32_t>{0, 3, 12, 16})) << "each sample once";
}

TEST(ElasticDifferenceTest, ExchangeIsUnderWayWhileTheGradientIsTakenAtTheOldWeights) {
  for (const float delta : {0.0f, 0.5f}) {
    Center parameters;
    const auto algorithm = MakeAlgorithm(MakeJob({.period = 1, .eta = 1, .delta = delta}), 1, &parameters);
    ASSERT_TRUE(algorithm->Start(0).ok());
    int passes = 0;
    const auto gradient = InLayers([&](absl::Span<const float> x, absl::Span<float> g) {
      EXPECT_TRUE(parameters.in_flight());
      EXPECT_EQ(x[0], 4.0f);
      g[0] = 0;
      ++passes;
    });
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(algorithm->Run({1, 0}, gradient).ok());
      EXPECT_FALSE(algorithm->in_flight());
      EXPECT_FALSE(parameters.in_flight());
    }
    EXPECT_EQ(passes, 2);
  }
}

TEST(ElasticDifferenceTest, StepWithoutSamplesTakesNoGradientAndDoesNotMove) {
  Center parameters;
  const auto algorithm = MakeAlgorithm(MakeJob({.period = 1, .eta = 1, .delta = 0.5}), 1, &parameters);
  ASSERT_TRUE(algorithm->Start(0).ok());
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  const auto never = InLayers(
      [](absl::Span<const float>, absl::Span<float>) { FAIL() << "there is nothing to learn from"; });
  ASSERT_TRUE(algorithm->Run({1, 0}, one).ok());
  ASSERT_TRUE(algorithm->Run({0, 0}, never).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(parameters.exchanged, (std::vector<float>{4, 3, 3}));
}

TEST(ElasticDifferenceTest, WorkerThatIsNoLongerFiniteBeginsAgainFromTheCenter) {
  Center parameters;
  const auto algorithm = MakeAlgorithm(MakeJob({.period = 1, .eta = 1, .delta = 0.5}), 1, &parameters);
  ASSERT_TRUE(algorithm->Start(0).ok());
  const auto nan = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = std::nanf(""); });
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  ASSERT_TRUE(algorithm->Run({1, 0}, nan).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, one).ok());
  EXPECT_EQ(parameters.pulls, 2);
  EXPECT_EQ(algorithm->counts().non_finite, 1u);
  ASSERT_TRUE(algorithm->Run({1, 0}, one).ok());
  EXPECT_EQ(parameters.exchanged.back(), 4.0f)
      << "the velocity, and the gradient of the lost weights, are gone";
}

TEST(ElasticDifferenceTest, ErrorsOfTheServersEndTheStep) {
  class Failing final : public FakeParameters {
   public:
    absl::Status status;

   private:
    absl::StatusOr<Outcome> CarryOut(const Operation&) override {
      if (!status.ok()) return status;
      return Outcome();
    }
  } parameters;
  const auto algorithm = MakeAlgorithm(MakeJob({.period = 1}), 1, &parameters);
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  ASSERT_TRUE(algorithm->Start(0).ok());
  ASSERT_TRUE(algorithm->Run({1, 0}, one).ok());
  parameters.status = absl::UnavailableError("gone");
  EXPECT_EQ(algorithm->Run({1, 0}, one).message(), "gone");
  EXPECT_EQ(algorithm->Finish().message(), "gone");
}

TEST(ElasticDifferenceTest, LearningRateFollowsTheJobsProgress) {
  Center parameters;
  v1::Job job = MakeJob({.period = 1, .eta = 1});
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  const auto algorithm = MakeAlgorithm(job, 1, &parameters);
  ASSERT_TRUE(algorithm->Start(0).ok());
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  for (double progress : {0.0, 0.5, 1.0}) ASSERT_TRUE(algorithm->Run({1, progress}, one).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  EXPECT_EQ(parameters.exchanged, (std::vector<float>{4, 3, 2.5, 2.5}));
}

TEST(ElasticDifferenceTest, ScheduleCyclesTheMomentum) {
  Center parameters;
  v1::Job job = MakeJob({.period = 1, .eta = 1, .delta = 0.5});
  v1::Schedule* const schedule = job.mutable_optimizer()->mutable_schedule();
  schedule->set_decay(v1::Schedule::ONE_CYCLE);
  schedule->set_pct_start(0.5f);
  schedule->set_initial_lr_fraction(1);
  schedule->set_final_fraction(1);
  schedule->set_min_momentum(0);
  const auto algorithm = MakeAlgorithm(job, 1, &parameters);
  ASSERT_TRUE(algorithm->Start(0).ok());
  const auto one = InLayers([](absl::Span<const float>, absl::Span<float> g) { g[0] = 1; });
  for (const double progress : {0.0, 0.25, 0.5, 0.75}) ASSERT_TRUE(algorithm->Run({1, progress}, one).ok());
  ASSERT_TRUE(algorithm->Finish().ok());
  // Momentum is 0.5, 0.25, 0, 0.25, and the moves 1, 1.25, 1, 1.25.
  const std::vector<float> expected = {4, 3, 1.75, 0.75, -0.5};
  ASSERT_EQ(parameters.exchanged.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(parameters.exchanged[i], expected[i], 1e-6) << i;
}

}  // namespace
}  // namespace catchment
