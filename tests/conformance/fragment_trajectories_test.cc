// Streaming and Decoupled DiLoCo against trajectories that were worked out event by event from the papers'
// formulas in double precision, without this code: golden/README.md.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/conformance/golden_jobs.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

using Json = nlohmann::json;

// The tolerance of float32 relative to double over a whole trajectory.
constexpr double kTolerance = 2e-5;

const std::map<std::string, Json>& Trajectories() {
  static const auto& trajectories = ReadTrajectories("tests/conformance/golden/fragments.json");
  return trajectories;
}

class Events {
 public:
  Events(const Json& trajectory, const ParameterSplit& split)
      : job_(JobOf(trajectory.at("job"))),
        initial_(trajectory.at("initial").get<std::vector<float>>()),
        curvature_(trajectory.at("curvature").get<std::vector<double>>()),
        targets_(trajectory.at("targets").get<std::vector<std::vector<std::vector<double>>>>()),
        taken_(job_.workers()),
        cluster_(job_, initial_, static_cast<int>(job_.workers()), split),
        algorithms_(job_.workers()) {
    cluster_.SetStepSeconds(trajectory.at("step_seconds"));
    for (int w = 0; w < static_cast<int>(job_.workers()); ++w) Start(w, cluster_.Connect(w));
  }

  void Happens(const Json& event) {
    cluster_.SetTime(event.at("at"));
    const std::string kind = event.at("kind");
    if (kind == "tick") return cluster_.Tick();
    const int worker = event.at("worker");
    if (kind == "leave") return cluster_.Leave(worker);
    if (kind == "join") return Start(worker, cluster_.Join(worker));
    ASSERT_TRUE(
        algorithms_[worker]->Run({.samples = static_cast<uint32_t>(worker + 1)}, GradientOf(worker)).ok());
  }

  std::vector<float> Weights() const { return cluster_.Weights(); }
  // Returns the contributions of each worker that were too late.
  std::vector<uint64_t> Late() const {
    std::vector<uint64_t> late(job_.workers());
    const v1::ShardReport report = cluster_.shard(0).Report();
    for (const v1::WorkerStatistics& worker : report.workers()) late[worker.worker()] += worker.late();
    return late;
  }

 private:
  void Start(int worker, Parameters* parameters) {
    algorithms_[worker] = MakeAlgorithm(job_, static_cast<int64_t>(initial_.size()), parameters);
    ASSERT_TRUE(algorithms_[worker]->Start(0).ok());
  }

  // A copy of it may outlive the call, but not this object.
  std::function<void(absl::Span<const float>, absl::Span<float>, PassObserver*)> GradientOf(int worker) {
    return InLayers([this, worker](absl::Span<const float> x, absl::Span<float> g) {
      const auto& targets = targets_[worker];
      const std::vector<double>& target = targets[taken_[worker]++ % targets.size()];
      for (size_t i = 0; i < x.size(); ++i)
        g[i] = static_cast<float>(curvature_[i] * (double{x[i]} - target[i]));
    });
  }

  const v1::Job job_;
  const std::vector<float> initial_;
  const std::vector<double> curvature_;
  const std::vector<std::vector<std::vector<double>>> targets_;  // by worker and step
  std::vector<size_t> taken_;                                    // by worker: gradients
  VirtualCluster cluster_;
  std::vector<std::unique_ptr<Algorithm>> algorithms_;
};

class FragmentTrajectoryTest : public testing::TestWithParam<std::string> {};

TEST_P(FragmentTrajectoryTest, IsThePapers) {
  const Json& trajectory = Trajectories().at(GetParam());
  const Json& events = trajectory.at("events");
  for (const ParameterSplit& split : {ParameterSplit{1, 1 << 18}, {1, 7}, {2, 16}}) {
    Events replay(trajectory, split);
    auto center = trajectory.at("initial").get<std::vector<double>>();
    size_t next = 0;
    for (size_t k = 0; k < events.size(); ++k) {
      ASSERT_NO_FATAL_FAILURE(replay.Happens(events[k]));
      const Json& updates = trajectory.at("updates");
      for (; next < updates.size() && updates[next].at("event") == k; ++next) {
        const auto indices = updates[next].at("indices").get<std::vector<size_t>>();
        for (size_t i = 0; i < indices.size(); ++i) center[indices[i]] = updates[next].at("center")[i];
      }
      const std::vector<float> weights = replay.Weights();
      for (size_t i = 0; i < center.size(); ++i) {
        ASSERT_NEAR(weights[i], center[i], kTolerance * (1 + std::abs(center[i])))
            << "after event " << k << ", " << events[k] << ", parameter " << i << ", blocks of "
            << split.block_size;
      }
    }
    EXPECT_EQ(next, trajectory.at("updates").size());
    // A server knows of the fragments that it has a part of.
    if (split.num_shards > 1) continue;
    EXPECT_EQ(replay.Late(), trajectory.at("late").get<std::vector<uint64_t>>());
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, FragmentTrajectoryTest, testing::ValuesIn(NamesOf(Trajectories())),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
