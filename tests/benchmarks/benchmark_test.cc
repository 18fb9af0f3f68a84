// Every benchmark as people start it, in its smallest size, and wrong flags. No figure has a limit: it would
// depend on the machine.
#include "tests/benchmarks/benchmark.h"

#include <fstream>
#include <set>
#include <utility>

#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

Finished RunBenchmark(std::vector<std::string> args) {
  args.insert(args.begin(), Runfile("tests/benchmarks/benchmark"));
  return RunToEnd(args);
}

struct Expected {
  std::string name;
  std::vector<std::string> flags;
  size_t rows;
  std::set<std::string> figures;      // above 0 in every row
  std::set<std::string> others = {};  // further keys
  // Figures that only some rows have, and the key and value of those rows; the others have null.
  std::set<std::string> only = {};
  std::pair<std::string, std::string> where = {};
};

class BenchmarkTest : public testing::TestWithParam<Expected> {};

TEST_P(BenchmarkTest, WritesItsRows) {
  const Expected& expected = GetParam();
  const std::string json = TestDirectory() + "/rows.json";
  std::vector<std::string> args = {expected.name, "--json=" + json};
  args.insert(args.end(), expected.flags.begin(), expected.flags.end());
  const Finished run = RunBenchmark(args);
  ASSERT_TRUE(run.end.in_order()) << run.output;
  const nlohmann::json rows = nlohmann::json::parse(std::ifstream(json), nullptr, false);
  ASSERT_EQ(rows.size(), expected.rows) << run.output;
  for (const nlohmann::json& row : rows) {
    std::set<std::string> keys;
    for (const auto& [key, value] : row.items()) keys.insert(key);
    std::set<std::string> all = expected.figures;
    all.insert(expected.others.begin(), expected.others.end());
    all.insert(expected.only.begin(), expected.only.end());
    ASSERT_EQ(keys, all);
    for (const std::string& key : expected.figures) EXPECT_GT(row.value(key, 0.0), 0) << key << " of " << row;
    for (const std::string& key : expected.only)
      EXPECT_EQ(row[key].is_number(), row[expected.where.first] == expected.where.second)
          << key << " of " << row;
  }
}

// The kernel counts processor time in hundredths of a second, of which a small run may use none.
INSTANTIATE_TEST_SUITE_P(
    All, BenchmarkTest,
    testing::Values(
        Expected{"apply",
                 {"--rounds=1", "--parameters=1000", "--optimizer=adam,elastic"},
                 2,
                 {"parameters", "threads", "gb_per_s", "triad_gb_per_s", "memcpy_gb_per_s", "ratio_to_triad",
                  "ratio_to_memcpy"},
                 {"optimizer", "cold"}},
        Expected{"checkpoint",
                 {"--bytes=4000", "--turns=2", "--steps=3"},
                 1,
                 {"bytes", "round_trips", "checkpoints", "without_p50_ms", "without_p99_ms", "with_p50_ms",
                  "with_p99_ms", "ratio_p50", "ratio_p99"}},
        Expected{
            "codecs",
            {"--rounds=1", "--codec=INT8"},
            4,
            {"payload_bytes_per_value", "ns_per_value", "gb_per_s", "memcpy_gb_per_s", "ratio_to_memcpy"},
            {"codec", "direction", "from"}},
        Expected{"control",
                 {"--workers=3", "--servers=1,3", "--step_ms=5", "--seconds=2"},
                 4,
                 {"workers", "servers", "step_ms", "calls_per_s", "cores"},
                 {"phase", "core_share", "processor"},
                 {"lease_p50_ms", "lease_p99_ms"},
                 {"phase", "training"}},
        Expected{"scaling",
                 {"--parameters=5000", "--workers=2", "--step_ms=10", "--seconds=0.5"},
                 6,
                 {"parameters", "step_ms", "workers", "updates_per_s", "efficiency", "network_gb_per_s",
                  "server_rss_mib", "worker_rss_mib", "start_s", "measured_steps", "cores"},
                 {"preset", "p50_ms", "p99_ms", "server_cpu_share", "worker_cpu_ms_per_update",
                  "machine_cpu_share", "processor"},
                 {"network_bound"},
                 {"preset", "sync"}},
        Expected{"wire",
                 {"--bytes=4800000", "--seconds=0.001"},
                 22,
                 {"bytes", "workers", "median_ms", "ratio_to_plain_tcp", "ratio_to_protobuf_unary",
                  "gb_per_s", "cpu_s_per_gb", "server_wake_ups", "worker_wake_ups", "round_trips"},
                 {"variant", "transport", "tls"}}),
    [](const auto& info) { return info.param.name; });

TEST(RunBenchmarksTest, NamesAWrongFlagAndTheBenchmarks) {
  const Finished number = RunBenchmark({"scaling", "--workers=2,none"});
  EXPECT_EQ(number.end.exit_code, 2);
  EXPECT_THAT(number.output, HasSubstr("--workers=2,none: takes whole numbers from 1 to 1000"));
  const Finished name = RunBenchmark({"wire", "--variant=plain"});
  EXPECT_EQ(name.end.exit_code, 2);
  EXPECT_THAT(name.output, HasSubstr("plain is not one of plain_tcp, plain_unix"));
  const Finished benchmark = RunBenchmark({"speed"});
  EXPECT_EQ(benchmark.end.exit_code, 2);
  EXPECT_THAT(benchmark.output, HasSubstr("apply, checkpoint, codecs, control, scaling, wire"));
}

TEST(AddNumbersTest, ReplacesTheDefaultByTheValuesOfAllFlags) {
  FlagSet flags;
  std::vector<int64_t> numbers = {1, 2};
  AddNumbers(&flags, "numbers", 0, 9, &numbers, "Numbers.");
  ASSERT_TRUE(flags.Parse({}).ok());
  EXPECT_THAT(numbers, ElementsAre(1, 2));
  ASSERT_TRUE(flags.Parse({"--numbers=3,4", "--numbers=5"}).ok());
  EXPECT_THAT(numbers, ElementsAre(3, 4, 5));
}

TEST(QuantileTest, OfOneTwoAndManyValues) {
  EXPECT_EQ(Median({3}), 3);
  EXPECT_EQ(Median({4, 1}), 2.5);
  EXPECT_EQ(Median({9, 1, 2}), 2);
  EXPECT_EQ(Quantile({5, 1, 4, 2, 3}, 0.6), 4);
  EXPECT_EQ(Quantile({5, 1}, 1), 5);
  EXPECT_EQ(MedianRatio({2, 9, 4}, {1, 3, 4}), 2);
}

TEST(InTurnsTest, CallsEachPassInTurnAndDropsTheFirstRound) {
  std::string calls;
  double next = 0;
  const auto pass = [&](char name) { return [&, name] { return calls.push_back(name), ++next; }; };
  EXPECT_THAT(InTurns(2, {pass('a'), pass('b')}), ElementsAre(ElementsAre(3, 5), ElementsAre(4, 6)));
  EXPECT_EQ(calls, "ababab");
}

}  // namespace
}  // namespace catchment
