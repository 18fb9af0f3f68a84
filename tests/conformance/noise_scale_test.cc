// The gradient noise scale of a linear model whose noise is known, measured by servers during a synchronous
// and a hybrid training.
//
// Rows a ~ N(0, I) of n values, targets y = a . w* + e with e ~ N(0, s^2), f = (a . w - y)^2 / 2. At w, with
// d = w - w*:
//   G = d ;  tr(S) = E ||(a . d - e) a||^2 - |d|^2 = (n + 1) |d|^2 + n s^2
#include "common/measures/noise_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "tests/conformance/in_process_parameters.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 50;
constexpr int kWorkers = 4;
constexpr double kDistance = 2, kNoise = 1;
constexpr double kTrace = (kValues + 1) * kDistance * kDistance + kValues * kNoise * kNoise;
constexpr double kScale = kTrace / (kDistance * kDistance);  // 63.5 samples

// Writes the mean gradient of `batch` new rows at w; w* = 0.
void Gradient(int batch, absl::Span<const float> w, Random* random, absl::Span<float> gradient) {
  std::vector<double> sum(kValues, 0.0), row(kValues);
  for (int j = 0; j < batch; ++j) {
    double error = -kNoise * random->Normal();
    for (int64_t i = 0; i < kValues; ++i) error += (row[i] = random->Normal()) * w[i];
    for (int64_t i = 0; i < kValues; ++i) sum[i] += error * row[i];
  }
  for (int64_t i = 0; i < kValues; ++i) gradient[i] = static_cast<float>(sum[i] / batch);
}

// The weights stay where they are, so that the noise scale does.
v1::JobStatus Train(const v1::Job& job, const std::vector<int>& batches, int rounds) {
  const std::vector<float> initial(kValues, static_cast<float>(kDistance / std::sqrt(kValues)));
  VirtualCluster cluster(job, initial, kWorkers, {.num_shards = 2, .block_size = 16});
  std::vector<VirtualCluster::Work> works;
  for (int w = 0; w < kWorkers; ++w) {
    works.push_back([&, w](Parameters* parameters) {
      const auto algorithm = MakeAlgorithm(job, kValues, parameters);
      ASSERT_TRUE(algorithm->Start(0).ok());
      Random random(100 + w);
      const auto gradient = InLayers([&](absl::Span<const float> weights, absl::Span<float> out) {
        Gradient(batches[w], weights, &random, out);
      });
      for (int round = 0; round < rounds; ++round) {
        ASSERT_TRUE(algorithm->Run({static_cast<uint32_t>(batches[w]), 0}, gradient).ok());
      }
      ASSERT_TRUE(algorithm->Finish().ok());
    });
  }
  cluster.Run(works);
  v1::JobStatus status;
  for (int s = 0; s < 2; ++s) *status.add_shards() = cluster.shard(s).Report();
  return status;
}

struct Case {
  const char* preset;
  std::vector<int> batches;
};

TEST(NoiseScaleTest, IsThatOfALinearModelWithKnownNoise) {
  for (const Case& c :
       {Case{"sync", {16, 16, 16, 16}}, Case{"sync", {4, 8, 12, 40}}, Case{"hybrid", {32, 32, 32, 32}}}) {
    SCOPED_TRACE(std::string(c.preset) + " " + std::to_string(c.batches[0]));
    const v1::Job job =
        PresetJob(c.preset, kWorkers, "optimizer { kind: SGD learning_rate: 1e-12 momentum: 0 }");
    const std::optional<v1::GradientNoise> noise = TotalNoise(Train(job, c.batches, 700));
    ASSERT_TRUE(noise.has_value());
    EXPECT_GE(noise->updates(), 100u);
    // 5 standard errors: in an update tr(S) varies by about 10 %, and |G|^2 by 41 %.
    EXPECT_NEAR(noise->trace(), kTrace, 0.05 * kTrace);
    EXPECT_NEAR(noise->squared_gradient(), kDistance * kDistance, 0.2 * kDistance * kDistance);
    ASSERT_TRUE(NoiseScale(*noise).has_value());
    EXPECT_NEAR(*NoiseScale(*noise), kScale, 0.2 * kScale);
  }
}

TEST(NoiseScaleTest, IsUnknownWhereGradientsAreAppliedOneByOneOrWeightsAreSent) {
  for (const char* preset : {"downpour", "softsync", "easgd_sync", "local_sgd"}) {
    const v1::JobStatus status = Train(PresetJob(preset, kWorkers), {1, 1, 1, 1}, 32);
    EXPECT_FALSE(TotalNoise(status).has_value()) << preset;
  }
}

}  // namespace
}  // namespace catchment
