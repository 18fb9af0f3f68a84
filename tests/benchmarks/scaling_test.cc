// The `scaling` benchmark as people start it: a short run of real daemons, and wrong flags.
#include <fstream>

#include "gmock/gmock.h"
#include "nlohmann/json.hpp"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

Finished RunScaling(std::vector<std::string> flags) {
  flags.insert(flags.begin(), Runfile("tests/benchmarks/scaling"));
  return RunToEnd(flags);
}

TEST(ScalingTest, MeasuresWhatItIsAskedForAndWritesItDown) {
  const std::string json = TestDirectory() + "/rows.json";
  const Finished run = RunScaling({"--presets=sync,downpour,easgd", "--parameters=5000", "--workers=2",
                                   "--step_ms=10", "--seconds=0.5", "--json=" + json});
  ASSERT_TRUE(run.end.in_order()) << run.output;
  EXPECT_THAT(run.output, HasSubstr("[6/6, "));
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(json), nullptr, false);
  ASSERT_EQ(rows.size(), 6u) << run.output;
  for (const nlohmann::json& row : rows) {
    for (const char* key :
         {"preset", "parameters", "step_ms", "workers", "updates_per_s", "efficiency", "network_bound",
          "p50_ms", "p99_ms", "server_cpu_share", "server_rss_mib", "worker_cpu_ms_per_update",
          "worker_rss_mib", "machine_cpu_share", "cores", "processor"}) {
      EXPECT_TRUE(row.contains(key)) << key;
    }
    EXPECT_EQ(row["parameters"], 5000);
    EXPECT_EQ(row["step_ms"], 10);
    EXPECT_GT(row["updates_per_s"], 0.0);
    EXPECT_GT(row["efficiency"], 0.0);
    EXPECT_GT(row["server_rss_mib"], 0.0);
    EXPECT_GT(row["worker_rss_mib"], 0.0);
    EXPECT_EQ(row["network_bound"].is_number(), row["preset"] == "sync");
  }
  EXPECT_EQ(rows[0]["preset"], "sync");
  EXPECT_EQ(rows[0]["workers"], 1);
  EXPECT_EQ(rows[0]["efficiency"], 1.0);
  EXPECT_EQ(rows[1]["workers"], 2);
}

TEST(ScalingTest, SaysWhatIsWrongWithAFlag) {
  const Finished run = RunScaling({"--workers=none"});
  EXPECT_EQ(run.end.exit_code, 2);
  EXPECT_THAT(run.output, HasSubstr("--workers=none: takes whole numbers from 1 to 1000"));
  EXPECT_THAT(RunScaling({"60"}).output, HasSubstr("accepts only flags, but got '60'"));
}

}  // namespace
}  // namespace catchment
