// One of four workers takes four times as long for each step. DiLoCo waits for it in every round;
// asynchronous DiLoCo does not. In virtual time, on the shard, the gate and the workers' algorithm.
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "server/control/lease_ledger.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/conformance/least_squares.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 20, kRows = 4096;
constexpr int kWorkers = 4, kBatch = 16;
constexpr uint32_t kLocalSteps = 16;
constexpr double kStepTimes[kWorkers] = {1, 1, 1, 4};

const LeastSquares& Problem() {
  static const LeastSquares problem(kValues, kRows, 7);
  return problem;
}

std::vector<float> Initial() { return std::vector<float>(kValues, 2.0f); }

// The loss of the center, whenever a worker is about to send.
struct Reading {
  double time;
  double loss;
};

// Trains for `until` units of time.
std::vector<Reading> Train(const std::string& preset, double until) {
  const v1::Job job =
      PresetJob(preset, kWorkers,
                "algorithm { contribution { pseudo_gradient { local_optimizer { learning_rate: 0.02 "
                "weight_decay: 0 schedule { decay: CONSTANT } } } } }");
  const bool waits = job.algorithm().consistency().has_synchronous();
  std::vector<uint32_t> steps(kWorkers, kLocalSteps);
  std::vector<double> rounds(kWorkers);  // how long each takes
  for (int w = 0; w < kWorkers; ++w) {
    if (!waits) steps[w] = LocalSteps(kLocalSteps, 1 / kStepTimes[w], /*fastest=*/1);
    rounds[w] = steps[w] * kStepTimes[w];
  }
  const double longest = *std::max_element(rounds.begin(), rounds.end());
  std::vector<double> due(kWorkers);  // the time of the next operation of each
  // The worker whose round ends first sends next.
  const auto first = [&due](const std::vector<int>& ready, int) {
    return *std::min_element(ready.begin(), ready.end(), [&due](int a, int b) { return due[a] < due[b]; });
  };
  std::vector<Reading> readings;
  VirtualCluster cluster(job, Initial(), kWorkers, {}, first);
  std::vector<VirtualCluster::Work> works;
  for (int w = 0; w < kWorkers; ++w) {
    works.push_back([&, w](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      due[w] = waits ? longest : rounds[w];
      ASSERT_TRUE(algorithm->Start(0).ok());
      int64_t row = w * (kRows / kWorkers);
      const auto gradient = InLayers([&](absl::Span<const float> weights, absl::Span<float> g) {
        Problem().Gradient(row, row + kBatch, weights, g);
        row += kBatch;
      });
      while (due[w] <= until) {
        for (uint32_t step = 1; step <= steps[w]; ++step) {
          if (step == steps[w]) {
            readings.push_back({due[w], Problem().Loss(cluster.Weights())});
            due[w] += waits ? longest : rounds[w];
          }
          ASSERT_TRUE(algorithm->Run({kBatch, 0, steps[w]}, gradient).ok());
        }
      }
    });
  }
  cluster.Run(works);
  return readings;
}

std::optional<double> TimeTo(double loss, const std::vector<Reading>& readings) {
  for (const Reading& reading : readings) {
    if (reading.loss <= loss) return reading.time;
  }
  return std::nullopt;
}

TEST(DiLoCoAsyncTest, ReachesTheLossOfDiLoCoInAFractionOfItsTimeWhereAWorkerIsSlow) {
  constexpr double kSlowRound = 4 * kLocalSteps;
  const std::vector<Reading> sync = Train("diloco", 40 * kSlowRound),
                             async = Train("diloco_async", 40 * kSlowRound);
  const double initial = Problem().Loss(Initial());
  for (const double share : {0.5, 0.25, 0.1}) {
    // The loss that no weights are below is about 0.5.
    const double target = 0.5 + share * (initial - 0.5);
    const auto waited = TimeTo(target, sync), took = TimeTo(target, async);
    ASSERT_TRUE(waited.has_value() && took.has_value()) << target;
    std::cout << "loss " << target << ": diloco " << *waited << ", diloco_async " << *took << std::endl;
    EXPECT_LE(*took, 0.6 * *waited) << target;
  }
}

}  // namespace
}  // namespace catchment
