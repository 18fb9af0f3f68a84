// Agreement with PyTorch's schedulers over 100 steps; golden/make_schedules.py says what is in the data.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <vector>

#include "common/job/learning_rate.h"
#include "tests/conformance/golden_jobs.h"

namespace catchment {
namespace {

const nlohmann::json& Golden() {
  static const nlohmann::json& golden = ReadGolden("tests/common/job/golden/schedules.json");
  return golden;
}

class ScheduleGoldenTest : public testing::TestWithParam<size_t> {};

TEST_P(ScheduleGoldenTest, AgreesWithPyTorch) {
  const nlohmann::json& golden = Golden()["cases"][GetParam()];
  const v1::Optimizer optimizer = JobOf({{"optimizer", golden["optimizer"]}}).optimizer();
  const std::vector<double> rates = golden["rates"];
  ASSERT_EQ(rates.size(), 101u);
  for (size_t step = 0; step < rates.size(); ++step) {
    // The second term is for courses that end at 0.
    EXPECT_NEAR(LearningRate(optimizer, step / 100.0), rates[step], 1e-6 * rates[step] + 1e-12)
        << golden["torch"] << ", step " << step;
  }
  const bool cycles = golden.contains("momenta");
  EXPECT_EQ(CycledMomentum(optimizer, 0).has_value(), cycles);
  if (!cycles) return;
  const std::vector<double> momenta = golden["momenta"];
  ASSERT_EQ(momenta.size(), 101u);
  for (size_t step = 0; step < momenta.size(); ++step) {
    EXPECT_NEAR(CycledMomentum(optimizer, step / 100.0).value_or(-1), momenta[step], 1e-6)
        << golden["torch"] << ", step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(All, ScheduleGoldenTest, testing::Range(size_t{0}, Golden()["cases"].size()),
                         [](const auto& info) {
                           return Golden()["cases"][info.param]["name"].template get<std::string>();
                         });

// But PLATEAU, which follows no course: tests/server/control/plateau_test.cc.
TEST(ScheduleGoldenTest, EveryDecayIsThere) {
  std::set<std::string> decays;
  for (const nlohmann::json& golden : Golden()["cases"]) {
    decays.insert(golden["optimizer"]["schedule"]["decay"].get<std::string>());
  }
  for (int decay = v1::Schedule::CONSTANT; decay <= v1::Schedule::Decay_MAX; ++decay) {
    if (decay == v1::Schedule::PLATEAU) continue;
    const std::string name = v1::Schedule::Decay_Name(static_cast<v1::Schedule::Decay>(decay));
    EXPECT_EQ(decays.count(name), 1u) << name;
  }
}

}  // namespace
}  // namespace catchment
