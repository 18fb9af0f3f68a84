// A worker that is given the state of another one goes on as that one would have, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "google/protobuf/text_format.h"
#include "tests/conformance/jobs.h"
#include "tests/conformance/layers.h"
#include "tests/worker/algorithms/fake_parameters.h"
#include "worker/algorithms/algorithm.h"
#include "worker/worker_state.h"

namespace catchment {
namespace {

constexpr int kValues = 6;
constexpr int kSteps = 12;  // a multiple of every period
constexpr uint32_t kSamples = 3;

// A center of one worker, which notes what it is sent.
class Center final : public FakeParameters {
 public:
  std::vector<float> weights = {3, -2, 1, 0.5f, -0.25f, 4};
  std::vector<std::vector<float>> sent;
  std::vector<uint32_t> samples;

 private:
  absl::StatusOr<Outcome> CarryOut(const Operation& operation) override {
    if (operation.kind != Operation::kPull) {
      sent.emplace_back(operation.input.begin(), operation.input.end());
      samples.push_back(operation.samples);
    }
    for (int k = 0; k < kValues; ++k) {
      if (operation.kind == Operation::kExchange) {
        const float d = 0.3f * (operation.input[k] - weights[k]);
        weights[k] += d;
        operation.output[k] = d;
        continue;
      }
      if (operation.kind != Operation::kPull) weights[k] -= 0.05f * operation.input[k];
      if (!operation.output.empty()) operation.output[k] = weights[k];
    }
    return Outcome();
  }
};

struct Case {
  std::string name;
  std::string preset;
  std::string contribution;  // text that replaces the preset's, where there is some
  float momentum = 0;
};

class WorkerStateTest : public testing::TestWithParam<Case> {
 protected:
  std::unique_ptr<Algorithm> StartAlgorithm(Center* center) const {
    auto algorithm = MakeAlgorithm(job_, kValues, center);
    EXPECT_TRUE(algorithm->Start(0).ok());
    return algorithm;
  }

  static void Train(Algorithm* algorithm, int first) {
    for (int t = first; t < first + kSteps; ++t) {
      const auto gradient = InLayers([t](absl::Span<const float> x, absl::Span<float> g) {
        for (int k = 0; k < kValues; ++k) g[k] = (1 + 0.1f * static_cast<float>(t % 5)) * x[k] - 0.5f;
      });
      ASSERT_TRUE(algorithm->Run({kSamples, 0}, gradient).ok());
    }
    ASSERT_TRUE(algorithm->Settle().ok());
  }

  const v1::Job job_ = [] {
    const Case& c = GetParam();
    v1::Job job = PresetJob(c.preset, 2);
    if (!c.contribution.empty()) {
      v1::Contribution* const contribution = job.mutable_algorithm()->mutable_contribution();
      EXPECT_TRUE(google::protobuf::TextFormat::MergeFromString(c.contribution, contribution));
    }
    if (c.momentum > 0) job.mutable_optimizer()->set_momentum(c.momentum);
    return job;
  }();
};

TEST_P(WorkerStateTest, RestoredWorkerGoesOnAsTheOneBeforeWouldHave) {
  Center undisturbed;
  const auto whole = StartAlgorithm(&undisturbed);
  Train(whole.get(), 0);
  Train(whole.get(), kSteps);

  Center center;
  auto first = StartAlgorithm(&center);
  Train(first.get(), 0);
  WorkerState saved;
  first->ListState(/*at_version=*/true, &saved);
  const bool keeps_something = !saved.vectors.empty();
  std::map<std::string, std::vector<float>> vectors;
  for (const WorkerState::Vector& vector : saved.vectors) {
    ASSERT_EQ(vector.values.size(), static_cast<size_t>(kValues)) << vector.name;
    vectors[vector.name] = {vector.values.begin(), vector.values.end()};
  }
  std::map<std::string, uint64_t> numbers;
  for (const WorkerState::Number& number : saved.numbers) numbers[number.name] = *number.value;
  ASSERT_EQ(vectors.size(), saved.vectors.size()) << "names differ";
  first.reset();

  Center without_state = center;
  const auto second = StartAlgorithm(&center);
  WorkerState restored;
  second->ListState(/*at_version=*/true, &restored);
  for (const WorkerState::Vector& vector : restored.vectors) {
    const std::vector<float>& values = vectors.at(vector.name);
    std::copy(values.begin(), values.end(), vector.values.begin());
  }
  for (const WorkerState::Number& number : restored.numbers) *number.value = numbers.at(number.name);
  Train(second.get(), kSteps);
  EXPECT_EQ(center.sent, undisturbed.sent);
  EXPECT_EQ(center.samples, undisturbed.samples);
  EXPECT_EQ(center.weights, undisturbed.weights);

  const auto stranger = StartAlgorithm(&without_state);
  Train(stranger.get(), kSteps);
  EXPECT_EQ(without_state.sent == undisturbed.sent, !keeps_something) << "the state makes no difference";
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerStateTest,
    testing::Values(Case{"gradient", "sync", ""},
                    Case{"gradient_fetched_rarely", "downpour",
                         "gradient { push_period: 2 fetch_period: 8 local_learning_rate: 0.1 }"},
                    Case{"gradient_fetched_between_pushes", "downpour",
                         "gradient { push_period: 3 fetch_period: 5 local_learning_rate: 0.1 }"},
                    Case{"elastic", "easgd_sync", "elastic { communication_period: 4 }"},
                    Case{"elastic_with_momentum", "eamsgd", "elastic { communication_period: 3 }", 0.9f},
                    Case{"local_sgd", "local_sgd", "pseudo_gradient { local_steps: 4 }"},
                    Case{"diloco", "diloco", "pseudo_gradient { local_steps: 6 }"},
                    Case{"look_ahead", "dana", ""}, Case{"energy_matching", "gem", ""}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace catchment
