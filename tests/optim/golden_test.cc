// Agreement with PyTorch over 100 steps, hyper-parameters and their defaults included; golden/make_golden.py
// says what is in the data.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/job/learning_rate.h"
#include "common/job/parameter_groups.h"
#include "optim/optimizer.h"
#include "tests/conformance/golden_jobs.h"

namespace catchment {
namespace {

// The tolerance of a weight: the reference has float64 weights, ours are float32.
constexpr double kTolerance = 1e-6;

const nlohmann::json& Golden() {
  static const nlohmann::json& golden = ReadGolden("tests/optim/golden/optimizers.json");
  return golden;
}

// With all defaults. Groups are added last: the complete job's model has other tensors.
v1::Optimizer Complete(nlohmann::json optimizer) {
  if (optimizer["kind"] == "SGD") optimizer.emplace("momentum", 0);  // instead of the preset's
  v1::Optimizer groups;
  CHECK(google::protobuf::util::JsonStringToMessage(
            nlohmann::json{{"groups", optimizer.value("groups", nlohmann::json::array())}}.dump(), &groups)
            .ok());
  optimizer.erase("groups");
  v1::Optimizer complete = JobOf({{"optimizer", optimizer}}).optimizer();
  *complete.mutable_groups() = groups.groups();
  return complete;
}

ParameterLayout Layout() {
  std::vector<TensorSpec> tensors;
  for (const int64_t size : Golden()["tensors"])
    tensors.push_back({absl::StrCat("w", tensors.size()), {size}});
  return *ParameterLayout::Create(tensors, /*num_shards=*/1, /*block_size=*/1024);
}

class GoldenTest : public testing::TestWithParam<size_t> {};

TEST_P(GoldenTest, AgreesWithPyTorch) {
  const nlohmann::json& golden = Golden();
  const nlohmann::json& expected = golden["cases"][GetParam()]["weights"];
  const v1::Optimizer config = Complete(golden["cases"][GetParam()]["optimizer"]);
  const ParameterLayout layout = Layout();
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config, 1, GroupTensors(config, &layout));
  std::vector<float> weights = golden["weights"];
  std::vector<float> a(weights.size()), b(weights.size()), c(weights.size());
  size_t compared = 0;
  for (uint64_t step = 1; step <= golden["gradients"].size(); ++step) {
    const std::vector<float> gradient = golden["gradients"][step - 1];
    Optimizer::Step now{config.learning_rate(), step};
    if (golden["cases"][GetParam()]["optimizer"].contains("schedule")) {
      const double progress = static_cast<double>(step - 1) / (golden["gradients"].size() - 1.0);
      now = {static_cast<float>(LearningRate(config, progress)), step, CycledMomentum(config, progress)};
      ASSERT_TRUE(now.momentum.has_value());
    }
    optimizer->Apply(now, {static_cast<int64_t>(weights.size()),
                           gradient.data(),
                           weights.data(),
                           {a.data(), b.data(), c.data()}});
    const auto shown = expected.find(std::to_string(step));
    if (shown == expected.end()) continue;
    ++compared;
    for (size_t i = 0; i < weights.size(); ++i) {
      const double reference = (*shown)[i];
      EXPECT_NEAR(weights[i], reference, kTolerance * std::abs(reference))
          << "step " << step << ", value " << i;
    }
  }
  EXPECT_EQ(compared, expected.size());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTest, testing::Range(size_t{0}, Golden()["cases"].size()),
                         [](const auto& info) {
                           return Golden()["cases"][info.param]["name"].template get<std::string>();
                         });

// But the kinds that take norms over whole tensors, which PyTorch does not have: whole_tensors_test.cc.
TEST(GoldenTest, EveryKindOfPyTorchIsThere) {
  for (const OptimizerKind* kind : OptimizerKinds()) {
    if (kind->whole_tensors) continue;
    const std::string name = v1::Optimizer::Kind_Name(kind->kind);
    EXPECT_THAT(Golden()["cases"],
                testing::Contains(
                    testing::ResultOf([](const nlohmann::json& c) { return c["optimizer"]["kind"]; }, name)));
  }
}

}  // namespace
}  // namespace catchment
