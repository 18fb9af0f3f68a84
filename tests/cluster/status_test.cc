// `catchment status` and `catchment stop` on real daemons.
#include <csignal>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<std::string> Command(const std::string& address, const std::vector<std::string>& flags) {
  std::vector<std::string> argv = {Runfile("cli/catchment"), "status", address};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return argv;
}

json StatusOf(const TestCluster& cluster) {
  const Finished finished = RunToEnd(Command(cluster.master(), {"--json"}));
  EXPECT_EQ(finished.end.exit_code, 0) << finished.output;
  const json status = json::parse(finished.output, nullptr, false);
  EXPECT_TRUE(status.is_object()) << finished.output;
  return status;
}

std::vector<std::string> StragglersIn(const json& status) {
  std::vector<std::string> stragglers;
  for (const json& warning : status["warnings"]) {
    if (warning["code"] == "straggler") stragglers.push_back(warning["worker"].dump());
  }
  return stragglers;
}

// Steps of 20 ms that take no processor: what a slow or busy machine adds to each stays small beside 80 ms.
constexpr char kJob[] = R"(
    name: "status"
    model { synthetic { parameters: 100000 step_ms: 20 } }
    data { synthetic { samples: 100000000 } }
    batch_size: 32 workers: 3 )";

TEST(StatusTest, StragglerIsNamedWhileTheJobRuns) {
  const std::string more =
      R"(algorithm { preset: "downpour" } faults { stragglers { worker: 1 slowdown_factor: 4 } })";
  TestCluster cluster({absl::StrCat(kJob, more), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(3);
  ASSERT_TRUE(cluster.AwaitStatus("three workers", AllHaveTrained(3, 32)));
  json status;
  ASSERT_TRUE(Await([&] { return status = StatusOf(cluster), !StragglersIn(status).empty(); }))
      << status.dump(2);
  EXPECT_THAT(StragglersIn(status), testing::ElementsAre("1")) << status.dump(2);
  EXPECT_EQ(status["phase"], "TRAINING");
  EXPECT_EQ(status["workers"].size(), 3u);
  EXPECT_GT(status["workers"][0]["samples_per_second"].get<double>(),
            status["workers"][1]["samples_per_second"].get<double>());
  EXPECT_EQ(status["shards"].size(), 2u);
  EXPECT_EQ(status["shards"][0]["address"], cluster.master());
  EXPECT_EQ(status["shards"][0]["parameters"].get<int>() + status["shards"][1]["parameters"].get<int>(),
            100000);
  EXPECT_GT(status["shards"][1]["bytes_pushed"], 0);
  for (const json& worker : status["workers"]) {
    EXPECT_LT(worker["seconds_since_heartbeat"], kPatience);
    EXPECT_GE(worker["staleness_max"], worker["staleness_p50"]);
    // It waited for the others to come before that.
    EXPECT_LT(worker["data_share"], 0.2) << status.dump(2);
  }

  const Finished text = RunToEnd(Command(cluster.master(), {}));
  EXPECT_EQ(text.end.exit_code, 0);
  EXPECT_THAT(text.output, HasSubstr("status (downpour), training\n"));
  EXPECT_THAT(text.output, HasSubstr("straggler: worker 1 ("));
  std::cout << text.output;
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

TEST(StatusTest, WatchingSeesTheEndOfTheJob) {
  TestCluster cluster({SmallJob("downpour", "workers: 1 epochs: 30"), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  absl::StatusOr<Process> watch = Process::Start(
      {"watch", Command(cluster.master(), {"--watch=0.3", "--json"}), TestDirectory() + "/watch.log"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE(cluster.AwaitOutput(*watch, "\n"));  // a line, so that it watches when training begins
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  ASSERT_TRUE(cluster.AwaitExit(*watch, 0)) << watch->Output();
  std::vector<std::string> phases;
  for (const auto& line : absl::StrSplit(watch->Output(), '\n', absl::SkipEmpty())) {
    const json status = json::parse(line, nullptr, false);
    ASSERT_TRUE(status.is_object()) << line;
    phases.push_back(status["phase"]);
  }
  EXPECT_EQ(phases.front(), "WAITING");
  EXPECT_EQ(phases.back(), "DONE");
}

TEST(StatusTest, AddressOfAnotherServerOrOfNobodyIsNamed) {
  TestCluster cluster({SmallJob("downpour", "workers: 1"), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(1), "listening on "));
  const std::string output = cluster.server(1).Output();
  const size_t begin = output.find("listening on ") + 13;
  const std::string second = output.substr(begin, output.find('\n', begin) - begin);
  const Finished other = RunToEnd(Command(second, {}));
  EXPECT_EQ(other.end.exit_code, 3);
  EXPECT_THAT(other.output, HasSubstr(second + " answers, but is not the master"));
  cluster.KillAll();
  const Finished without_master = RunToEnd(Command(cluster.master(), {}));
  EXPECT_EQ(without_master.end.exit_code, 3);
  EXPECT_THAT(without_master.output, HasSubstr("master at " + cluster.master()));
  EXPECT_EQ(RunToEnd(Command(cluster.master(), {"--jsn"})).end.exit_code, 2);
}

TEST(StatusTest, WatchingSeesThatTheJobHasFailed) {
  // This learning rate makes the weights infinite within a few steps.
  const std::string more =
      "workers: 1 epochs: 1000000 optimizer { learning_rate: 1e30 } faults { non_finite_limit: 3 }";
  TestCluster cluster({SmallJob("downpour", more), /*servers=*/1});
  ASSERT_TRUE(cluster.StartServers());
  absl::StatusOr<Process> watch =
      Process::Start({"watch", Command(cluster.master(), {"--watch=0.3"}), TestDirectory() + "/watch.log"});
  ASSERT_TRUE(watch.ok()) << watch.status();
  ASSERT_TRUE(cluster.AwaitOutput(*watch, "waiting for workers: 0 of 1 have registered"));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitExit(*watch, 1)) << watch->Output();
  EXPECT_THAT(watch->Output(), HasSubstr("small (downpour), failed: worker 0 sent "));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
}

Finished Stop(const std::string& master, const std::vector<std::string>& flags = {}) {
  std::vector<std::string> argv = {Runfile("cli/catchment"), "stop", master};
  argv.insert(argv.end(), flags.begin(), flags.end());
  return RunToEnd(argv);
}

TEST(StopCommandTest, TheDirectoryOfARunIsAsGoodAsItsAddress) {
  TestCluster cluster({SmallJob("downpour", "workers: 2 epochs: 1000000"), /*servers=*/2});
  const Finished before = RunToEnd(Command(TestDirectory(), {}));
  EXPECT_EQ(before.end.exit_code, 3);
  EXPECT_THAT(before.output, HasSubstr("no master uses this --out"));
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  const Finished running = RunToEnd(Command(cluster.out_dir(), {"--json"}));
  EXPECT_EQ(running.end.exit_code, 0) << running.output;
  EXPECT_EQ(json::parse(running.output, nullptr, false)["phase"], "TRAINING") << running.output;
  const Finished health = RunToEnd({Runfile("cli/catchment"), "health", cluster.out_dir()});
  EXPECT_EQ(health.output, "SERVING\n");

  const Finished stop = Stop(cluster.out_dir(), {"--reason=enough of it"});
  EXPECT_EQ(stop.end.exit_code, 0) << stop.output;
  EXPECT_THAT(stop.output, HasSubstr("the job has ended: STOPPED at "));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["reason"], "enough of it");
  EXPECT_GT(cluster.Summary()["last_checkpoint"], 0);

  const Finished ended = RunToEnd(Command(cluster.out_dir(), {}));
  EXPECT_EQ(ended.end.exit_code, 0);
  EXPECT_THAT(ended.output, HasSubstr("the job has ended: STOPPED, enough of it"));
  const Finished again = Stop(cluster.out_dir());
  EXPECT_EQ(again.end.exit_code, 0);
  EXPECT_THAT(again.output, HasSubstr("the job has already ended: STOPPED"));
}

TEST(StopCommandTest, NowEndsWithoutWaitingForWorkersAndWithoutACheckpoint) {
  TestCluster cluster({SmallJob("sync", "workers: 2 epochs: 1000000"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  // It would never leave.
  cluster.worker(1).Signal(SIGSTOP);
  const Finished stop = Stop(cluster.master(), {"--now"});
  EXPECT_EQ(stop.end.exit_code, 0) << stop.output;
  EXPECT_THAT(stop.output, HasSubstr("STOPPED"));
  EXPECT_THAT(stop.output, HasSubstr("without a checkpoint"));
  cluster.worker(1).Signal(SIGCONT);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["phase"], "STOPPED");
  EXPECT_THAT(std::string(cluster.Summary()["reason"]), HasSubstr("`catchment stop`"));
}

}  // namespace
}  // namespace catchment
