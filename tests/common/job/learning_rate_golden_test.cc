// Agreement with PyTorch's schedulers over 100 steps; golden/make_schedules.py says what is in the data.
#include <gmock/gmock.h>
#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <vector>

#include "common/job/learning_rate.h"
#include "common/job/validate.h"
#include "nlohmann/json.hpp"

namespace catchment {
namespace {

constexpr char kFile[] = "tests/common/job/golden/schedules.json";

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
  const auto read = google::protobuf::util::JsonStringToMessage(optimizer.dump(), job.mutable_optimizer());
  EXPECT_TRUE(read.ok()) << optimizer;
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.ok() ? complete->optimizer() : job.optimizer();
}

class ScheduleGoldenTest : public testing::TestWithParam<size_t> {};

TEST_P(ScheduleGoldenTest, AgreesWithPyTorch) {
  const nlohmann::json& golden = Golden()["cases"][GetParam()];
  const v1::Optimizer optimizer = Complete(golden["optimizer"]);
  const std::vector<double> rates = golden["rates"];
  ASSERT_EQ(rates.size(), 101u);
  for (size_t step = 0; step < rates.size(); ++step) {
    // The second term is for courses that end at 0.
    EXPECT_NEAR(LearningRate(optimizer, step / 100.0), rates[step], 1e-6 * rates[step] + 1e-12)
        << golden["torch"] << ", step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleGoldenTest, testing::Range(size_t{0}, Golden()["cases"].size()),
                         [](const auto& info) {
                           return Golden()["cases"][info.param]["name"].template get<std::string>();
                         });

TEST(ScheduleGoldenTest, EveryDecayIsThere) {
  for (int decay = v1::Schedule::CONSTANT; decay <= v1::Schedule::Decay_MAX; ++decay) {
    const std::string name = v1::Schedule::Decay_Name(static_cast<v1::Schedule::Decay>(decay));
    EXPECT_THAT(Golden()["cases"],
                testing::Contains(testing::ResultOf(
                    [](const nlohmann::json& c) { return c["optimizer"]["schedule"]["decay"]; }, name)));
  }
}

}  // namespace
}  // namespace catchment
