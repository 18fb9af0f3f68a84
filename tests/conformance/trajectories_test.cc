// Every rule against trajectories that were worked out from the papers' formulas in double precision, without
// this code: golden/README.md.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
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
  static const auto& trajectories = ReadTrajectories("tests/conformance/golden/trajectories.json");
  return trajectories;
}

// Counts what reaches the servers.
class CountingParameters final : public Parameters {
 public:
  explicit CountingParameters(Parameters* parameters) : parameters_(*parameters) {}

  void Start(const Operation& operation) override {
    pushes_ += operation.kind != Operation::kPull;
    parameters_.Start(operation);
  }
  void Ready(Range range) override { parameters_.Ready(range); }
  absl::Status Await(Range range) override { return parameters_.Await(range); }
  absl::StatusOr<Outcome> Finish(int fragment) override { return parameters_.Finish(fragment); }
  bool IsDone(int fragment) const override { return parameters_.IsDone(fragment); }
  int num_fragments() const override { return parameters_.num_fragments(); }
  std::vector<Range> fragment(int fragment) const override { return parameters_.fragment(fragment); }

  int pushes() const { return pushes_; }

 private:
  Parameters& parameters_;
  int pushes_ = 0;
};

struct Replay {
  Replay(const Json& trajectory, int64_t block_size)
      : job(JobOf(trajectory.at("job"))),
        order(trajectory.at("order").get<std::vector<int>>()),
        initial(trajectory.at("initial").get<std::vector<float>>()),
        curvature(trajectory.at("curvature").get<std::vector<double>>()),
        targets(trajectory.at("targets").get<std::vector<std::vector<std::vector<double>>>>()),
        workers(static_cast<int>(job.workers())),
        cluster(job, initial, workers, {1, block_size, trajectory.at("tensors").get<std::vector<int64_t>>()},
                [this](const std::vector<int>& ready, int last) { return Pick(ready, last); }) {}

  void Run() {
    std::vector<VirtualCluster::Work> works;
    for (int w = 0; w < workers; ++w) {
      works.push_back([this, w](Parameters* parameters) { Work(w, parameters); });
    }
    cluster.Run(works);
    if (centers.size() < order.size()) Record();
  }

  void Record() {
    centers.push_back(cluster.Weights());
    versions.push_back(cluster.shard(0).version());
  }

  // First everybody pulls, in the order of their indices; then comes one operation a turn.
  int Pick(const std::vector<int>& ready, int last) {
    if (++picks < workers) return last + 1;
    const size_t done = picks - workers;
    if (done > 0 && done <= order.size()) Record();
    const int next = done < order.size() ? order[done] : ready.front();
    CHECK(std::binary_search(ready.begin(), ready.end(), next)) << next << " waits, after operation " << done;
    return next;
  }

  void Work(int w, Parameters* parameters) {
    CountingParameters counting(parameters);
    const auto algorithm = MakeAlgorithm(job, static_cast<int64_t>(initial.size()), &counting);
    ASSERT_TRUE(algorithm->Start(0).ok());
    const auto turns = std::count(order.begin(), order.end(), w);
    size_t taken = 0;
    const auto gradient = InLayers([&](absl::Span<const float> x, absl::Span<float> g) {
      const std::vector<double>& target = targets[w][taken++ % targets[w].size()];
      for (size_t i = 0; i < x.size(); ++i)
        g[i] = static_cast<float>(curvature[i] * (double{x[i]} - target[i]));
    });
    while (counting.pushes() < turns) {
      ASSERT_TRUE(algorithm->Run({.samples = static_cast<uint32_t>(w + 1)}, gradient).ok());
    }
    // It stays until all have had their turns: who goes changes what the others wait for.
    ASSERT_TRUE(algorithm->Settle().ok());
  }

  const v1::Job job;
  const std::vector<int> order;
  const std::vector<float> initial;
  const std::vector<double> curvature;
  const std::vector<std::vector<std::vector<double>>> targets;  // by worker and step
  const int workers;
  VirtualCluster cluster;
  int picks = 0;
  std::vector<std::vector<float>> centers;
  std::vector<uint64_t> versions;
};

class TrajectoryTest : public testing::TestWithParam<std::string> {};

TEST_P(TrajectoryTest, IsThePapers) {
  const Json& trajectory = Trajectories().at(GetParam());
  const auto centers = trajectory.at("centers").get<std::vector<std::vector<double>>>();
  const auto versions = trajectory.at("versions").get<std::vector<uint64_t>>();
  for (const int64_t block_size : {1 << 18, 4}) {
    Replay replay(trajectory, block_size);
    replay.Run();
    ASSERT_EQ(replay.centers.size(), centers.size());
    for (size_t k = 0; k < centers.size(); ++k) {
      ASSERT_EQ(replay.versions[k], versions[k]) << "after operation " << k;
      for (size_t i = 0; i < centers[k].size(); ++i) {
        ASSERT_NEAR(replay.centers[k][i], centers[k][i], kTolerance * (1 + std::abs(centers[k][i])))
            << "after operation " << k << ", parameter " << i << ", blocks of " << block_size;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, TrajectoryTest, testing::ValuesIn(NamesOf(Trajectories())),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
