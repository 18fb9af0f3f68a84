// Agreement with PyTorch's ReduceLROnPlateau; golden/make_plateau.py says what is in the data.
#include "server/control/plateau.h"

#include <google/protobuf/util/json_util.h>
#include <gtest/gtest.h>

#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "common/job/validate.h"

namespace catchment {
namespace {

const nlohmann::json& Golden() {
  static const nlohmann::json* const kGolden = [] {
    std::ifstream file("tests/server/control/golden/plateau.json");
    return new nlohmann::json(nlohmann::json::parse(file));
  }();
  return *kGolden;
}

// As a job has it, with all defaults.
v1::Schedule Complete(const nlohmann::json& schedule) {
  v1::Job job;
  job.mutable_data()->mutable_drawn_digits();
  job.mutable_model()->add_layers()->mutable_flatten();
  job.mutable_model()->add_layers()->mutable_dense()->set_units(10);
  v1::Schedule* const given = job.mutable_optimizer()->mutable_schedule();
  EXPECT_TRUE(google::protobuf::util::JsonStringToMessage(schedule.dump(), given).ok()) << schedule;
  const absl::StatusOr<v1::Job> complete = FillDefaultsAndValidate(job);
  EXPECT_TRUE(complete.ok()) << complete.status();
  return complete.ok() ? complete->optimizer().schedule() : *given;
}

double LossOf(const nlohmann::json& loss) {
  return loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::quiet_NaN();
}

class PlateauGoldenTest : public testing::TestWithParam<size_t> {};

TEST_P(PlateauGoldenTest, AgreesWithPyTorch) {
  const nlohmann::json& golden = Golden()["cases"][GetParam()];
  const std::vector<double> rates = golden["rates"];
  ASSERT_EQ(golden["losses"].size(), rates.size());
  ASSERT_LT(rates.back(), 1) << "the case would show nothing";
  Plateau plateau(Complete(golden["schedule"]), {});
  for (size_t i = 0; i < rates.size(); ++i) {
    const double before = plateau.factor();
    const bool fell = plateau.Observe(LossOf(golden["losses"][i]));
    EXPECT_NEAR(plateau.factor(), rates[i], 1e-12) << golden["torch"] << ", evaluation " << i;
    EXPECT_EQ(fell, plateau.factor() < before) << i;
  }
}

// Whenever a job is stopped, it goes on as if it had not been.
TEST_P(PlateauGoldenTest, GoesOnFromItsState) {
  const nlohmann::json& golden = Golden()["cases"][GetParam()];
  const std::vector<double> rates = golden["rates"];
  const v1::Schedule schedule = Complete(golden["schedule"]);
  v1::PlateauState state;
  for (size_t i = 0; i < rates.size(); ++i) {
    Plateau plateau(schedule, state);
    plateau.Observe(LossOf(golden["losses"][i]));
    EXPECT_NEAR(plateau.factor(), rates[i], 1e-12) << "evaluation " << i;
    state.ParseFromString(plateau.state().SerializeAsString());
  }
}

INSTANTIATE_TEST_SUITE_P(All, PlateauGoldenTest, testing::Range(size_t{0}, Golden()["cases"].size()),
                         [](const auto& info) {
                           return Golden()["cases"][info.param]["name"].template get<std::string>();
                         });

}  // namespace
}  // namespace catchment
