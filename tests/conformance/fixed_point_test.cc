// At consensus with zero gradients nothing moves, in any algorithm, for any number of workers; and a worker
// that vanishes leaves the others running.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/job/presets.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

uint32_t FragmentsOf(const std::string& preset) {
  return std::max(1u, FindPreset(preset)->algorithm.contribution().pseudo_gradient().fragments());
}

int64_t ValuesOf(const std::string& preset) {
  const int64_t fragments = FragmentsOf(preset);
  return fragments > 1 ? 64 * fragments : 40;
}

std::vector<float> InitialOf(const std::string& preset) {
  Random random(3);
  std::vector<float> initial(ValuesOf(preset));
  for (float& value : initial) value = static_cast<float>(random.Normal());
  return initial;
}

// With a learning rate that would show, without weight decay, which moves weights without gradients.
std::string Restless(const std::string& preset) {
  if (preset == "gem") return "algorithm { contribution { energy_matching { learning_rate: 0.5 } } }";
  if (FindPreset(preset)->algorithm.contribution().has_pseudo_gradient()) {
    return absl::StrCat(
        "algorithm { contribution { pseudo_gradient { local_steps: ", std::max(3u, FragmentsOf(preset)),
        " local_optimizer { learning_rate: 0.5 weight_decay: 0 } } } }");
  }
  return "optimizer { learning_rate: 0.5 }";
}

class AlgorithmTest : public testing::TestWithParam<std::string> {};

TEST_P(AlgorithmTest, ConsensusWithoutGradientsIsAFixedPointForAThousandRounds) {
  const std::vector<float> initial = InitialOf(GetParam());
  // The others need more.
  const bool alone = std::string(GetParam()) != "hybrid" && std::string(GetParam()) != "sync_backup";
  for (int workers = alone ? 1 : 2; workers <= 8; ++workers) {
    const v1::Job job = PresetJob(GetParam(), workers, Restless(GetParam()));
    VirtualCluster cluster(job, initial, workers, {2, ValuesOf(GetParam()) / 3});
    cluster.Run([&](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, ValuesOf(GetParam()), parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      const auto zero = InLayers([&](absl::Span<const float> w, absl::Span<float> g) {
        std::fill(g.begin(), g.end(), 0.0f);
        for (size_t i = 0; i < w.size(); ++i) ASSERT_EQ(w[i], initial[i]);
      });
      for (int round = 0; round < 1000; ++round) {
        // The whole vector is compared now and then only.
        const auto quiet = InLayers(
            [](absl::Span<const float>, absl::Span<float> g) { std::fill(g.begin(), g.end(), 0.0f); });
        if (round % 100 == 99) {
          ASSERT_TRUE(algorithm->Run({1, 0}, zero).ok());
        } else {
          ASSERT_TRUE(algorithm->Run({1, 0}, quiet).ok());
        }
      }
      ASSERT_TRUE(algorithm->Finish().ok());
    });
    EXPECT_EQ(cluster.Weights(), initial) << workers << " workers";
  }
}

TEST_P(AlgorithmTest, WorkerThatVanishesAfterAnyNumberOfStepsLeavesTheOthersRunning) {
  constexpr int kSteps = 12;
  const std::vector<float> initial = InitialOf(GetParam());
  for (int trial = 0; trial < 3 * kSteps; ++trial) {
    const int last = trial / 3, vanishing = trial % 3;
    const v1::Job job = PresetJob(GetParam(), 3, Restless(GetParam()));
    VirtualCluster cluster(job, initial, 3, {2, ValuesOf(GetParam()) / 3});
    std::vector<int> done(3, 0);
    std::vector<VirtualCluster::Work> works;
    for (int worker = 0; worker < 3; ++worker) {
      works.push_back([&, worker](Parameters* parameters) {
        const auto algorithm = MakeAlgorithm(job, ValuesOf(GetParam()), parameters);
        ASSERT_TRUE(algorithm->Start(0).ok());
        const auto small = InLayers([](absl::Span<const float> w, absl::Span<float> g) {
          for (size_t i = 0; i < w.size(); ++i) g[i] = 0.01f * w[i];
        });
        for (; done[worker] < kSteps; ++done[worker]) {
          // Without Finish: the others learn of it only from the rosters.
          if (worker == vanishing && done[worker] == last) return cluster.Leave(worker);
          ASSERT_TRUE(algorithm->Run({1, 0}, small).ok());
        }
        ASSERT_TRUE(algorithm->Finish().ok());
      });
    }
    cluster.Run(works);
    std::vector<int> expected(3, kSteps);
    expected[vanishing] = last;
    EXPECT_EQ(done, expected);
  }
}

INSTANTIATE_TEST_SUITE_P(Presets, AlgorithmTest, testing::ValuesIn(PresetNames()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
