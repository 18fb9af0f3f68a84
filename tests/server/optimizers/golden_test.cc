// Agreement with PyTorch over 100 steps, hyper-parameters and their defaults included; golden/make_golden.py
// says what is in the data.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/job/validate.h"
#include "nlohmann/json.hpp"
#include "server/optimizers/optimizer.h"

namespace catchment {
namespace {

constexpr char kFile[] = "tests/server/optimizers/golden/optimizers.json";

// Of a weight. The reference has float64 weights, ours are float32.
constexpr double kTolerance = 1e-6;

const nlohmann::json& Golden() {
  static const nlohmann::json* const kGolden = [] {
    std::ifstream file(kFile);
    return new nlohmann::json(nlohmann::json::parse(file));
  }();
  return *kGolden;
}

// As a job has it, with all defaults.
v1::Optimizer Complete(const nlohmann::json& optimizer) {
  v1::Job job;
  job.mutable_data()->mutable_drawn_digits();
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(10);
  if (optimizer["kind"] == "SGD") job.mutable_optimizer()->set_momentum(0);  // instead of the preset's
  v1::Optimizer given;
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(optimizer.dump(), &given).ok()) << optimizer;
  job.mutable_optimizer()->MergeFrom(given);
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.ok() ? complete->optimizer() : given;
}

class GoldenTest : public testing::TestWithParam<size_t> {};

TEST_P(GoldenTest, AgreesWithPyTorch) {
  const nlohmann::json& golden = Golden();
  const nlohmann::json& expected = golden["cases"][GetParam()]["weights"];
  const v1::Optimizer config = Complete(golden["cases"][GetParam()]["optimizer"]);
  const std::unique_ptr<Optimizer> optimizer = MakeOptimizer(config);
  std::vector<float> weights = golden["weights"];
  std::vector<float> a(weights.size()), b(weights.size());
  size_t compared = 0;
  for (uint64_t step = 1; step <= golden["gradients"].size(); ++step) {
    const std::vector<float> gradient = golden["gradients"][step - 1];
    optimizer->Apply(
        {config.learning_rate(), step},
        {static_cast<int64_t>(weights.size()), gradient.data(), weights.data(), {a.data(), b.data()}});
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

// But LARS and LAMB, which PyTorch has not: whole_tensors_test.cc.
TEST(GoldenTest, EveryKindOfPyTorchIsThere) {
  for (int kind = v1::Optimizer::Kind_MIN + 1; kind <= v1::Optimizer::Kind_MAX; ++kind) {
    if (kind == v1::Optimizer::LARS || kind == v1::Optimizer::LAMB) continue;
    const std::string name = v1::Optimizer::Kind_Name(static_cast<v1::Optimizer::Kind>(kind));
    EXPECT_THAT(Golden()["cases"],
                testing::Contains(
                    testing::ResultOf([](const nlohmann::json& c) { return c["optimizer"]["kind"]; }, name)));
  }
}

}  // namespace
}  // namespace catchment
