// Whatever workers send, it goes down: one exchange of small steps on a bowl lowers the loss.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int kValues = 16;

struct Case {
  const char* name;
  const char* preset;
  // A learning rate of 0.001 where the steps are made.
  const char* more;
  int steps;  // until the center has moved
};

constexpr Case kCases[] = {
    {"Sync", "sync", "optimizer { learning_rate: 0.001 }", 1},
    {"Downpour", "downpour", "optimizer { learning_rate: 0.001 }", 1},
    {"Easgd", "easgd", "optimizer { learning_rate: 0.001 }", 4},
    {"EasgdSync", "easgd_sync", "optimizer { learning_rate: 0.001 }", 4},
    {"Eamsgd", "eamsgd", "optimizer { learning_rate: 0.001 }", 4},
    {"Dana", "dana", "optimizer { learning_rate: 0.001 }", 1},
    {"Gem", "gem", "algorithm { contribution { energy_matching { learning_rate: 0.001 } } }", 1},
    {"LocalSgd", "local_sgd",
     "algorithm { contribution { pseudo_gradient { local_steps: 2 "
     "local_optimizer { learning_rate: 0.001 } } } }",
     2},
    {"DiLoCo", "diloco",
     "algorithm { contribution { pseudo_gradient { local_steps: 2 "
     "local_optimizer { learning_rate: 0.001 } } } }",
     2},
    {"AsynchronousDiLoCo", "diloco_async",
     "algorithm { contribution { pseudo_gradient { local_steps: 2 "
     "local_optimizer { learning_rate: 0.001 } } } }",
     2},
    {"AsynchronousLocalSgd", "local_sgd",
     "algorithm { consistency { asynchronous {} } contribution { pseudo_gradient { local_steps: 2 "
     "local_optimizer { learning_rate: 0.001 } } } }",
     2},
};

class SignTest : public testing::TestWithParam<Case> {};

// f(w) = k |w|^2 / 2 on every worker.
TEST_P(SignTest, OneExchangeLowersTheLoss) {
  for (const double k : {0.1, 1.0, 10.0}) {
    for (const int workers : {1, 3}) {
      const v1::Job job = PresetJob(GetParam().preset, workers, GetParam().more);
      std::vector<float> initial(kValues);
      for (int i = 0; i < kValues; ++i)
        initial[i] = (i % 2 == 0 ? 1.0f : -1.0f) * (1 + static_cast<float>(i));
      VirtualCluster cluster(job, initial, workers);
      cluster.Run([&](Parameters* parameters) {
        const auto algorithm = MakeAlgorithm(job, kValues, parameters);
        ASSERT_TRUE(algorithm->Start(0).ok());
        const auto gradient = InLayers([&](absl::Span<const float> w, absl::Span<float> g) {
          for (int i = 0; i < kValues; ++i) g[i] = static_cast<float>(k * w[i]);
        });
        for (int step = 0; step < GetParam().steps; ++step) {
          ASSERT_TRUE(algorithm->Run({1, 0}, gradient).ok());
        }
        ASSERT_TRUE(algorithm->Finish().ok());
      });
      const std::vector<float> weights = cluster.Weights();
      for (int i = 0; i < kValues; ++i) {
        EXPECT_LT(std::fabs(weights[i]), std::fabs(initial[i])) << "k " << k << ", workers " << workers;
        EXPECT_GT(weights[i] / initial[i], 0.5) << "a small step";
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Algorithms, SignTest, testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

}  // namespace
}  // namespace catchment
