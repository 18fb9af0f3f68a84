// The `control` benchmark as people start it: a short run, and wrong flags.
#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

Finished RunControl(std::vector<std::string> flags) {
  flags.insert(flags.begin(), Runfile("tests/benchmarks/control"));
  return RunToEnd(flags);
}

TEST(ControlTest, MeasuresTrainingAndWaitingAndWritesThemDown) {
  const std::string json = TestDirectory() + "/rows.json";
  const Finished run =
      RunControl({"--workers=3", "--servers=1,3", "--step_ms=5", "--seconds=1", "--json=" + json});
  ASSERT_TRUE(run.end.in_order()) << run.output;
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(json), nullptr, false);
  ASSERT_EQ(rows.size(), 4u) << run.output;
  for (size_t i = 0; i < rows.size(); ++i) {
    const nlohmann::json& row = rows[i];
    EXPECT_EQ(row["workers"], 3);
    EXPECT_EQ(row["servers"], i < 2 ? 1 : 3);
    EXPECT_EQ(row["phase"], i % 2 == 0 ? "training" : "waiting");
    // The kernel counts in hundredths of a second, and so few workers may take less.
    EXPECT_TRUE(row["core_share"].is_number()) << row;
    EXPECT_GE(row["core_share"], 0.0) << row;
    EXPECT_GT(row["calls_per_s"], 0.0) << row;
    EXPECT_EQ(row["lease_p50_ms"].is_number(), row["phase"] == "training") << row;
    EXPECT_EQ(row["lease_p99_ms"].is_number(), row["phase"] == "training") << row;
  }
}

TEST(ControlTest, SaysWhatIsWrongWithAFlag) {
  const Finished run = RunControl({"--workers=none"});
  EXPECT_EQ(run.end.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr("--workers=none: takes whole numbers from 2 to 10000"));
}

}  // namespace
}  // namespace catchment
