// The logs of daemons: what they say of a job, and how they end.
#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::ContainsRegex;
using testing::HasSubstr;
using testing::StartsWith;
using Json = nlohmann::json;

std::string LastLine(const Process& process) {
  const std::vector<std::string> lines = process.LastLines(1);
  return lines.empty() ? "" : lines[0];
}

// Returns the objects of a log with --log_format=json. A test failure if a line on standard error is not one.
std::vector<Json> Objects(const Process& process) {
  std::vector<Json> objects;
  for (absl::string_view line : absl::StrSplit(process.Output(), '\n', absl::SkipEmpty())) {
    // The one line on standard output, which programs read.
    if (absl::StrContains(line, ": listening on ")) continue;
    objects.push_back(Json::parse(line, nullptr, /*allow_exceptions=*/false));
    EXPECT_TRUE(objects.back().is_object()) << line;
  }
  return objects;
}

std::vector<Json> WithEvent(const std::vector<Json>& objects, const std::string& event) {
  std::vector<Json> found;
  for (const Json& object : objects) {
    if (object.value("event", "") == event) found.push_back(object);
  }
  return found;
}

std::string Job(const std::string& more) {
  return SmallJob("sync", absl::StrCat("workers: 2 batch_size: 32 ", more));
}

TEST(LogsTest, LastLinesSayWhyDaemonsEnd) {
  TestCluster cluster({Job("epochs: 4"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_THAT(LastLine(cluster.server(0)), HasSubstr("the job is DONE (exit code 0)"));
  EXPECT_THAT(LastLine(cluster.server(1)), ContainsRegex("the job is (over|DONE).*\\(exit code 0\\)"));
  EXPECT_THAT(LastLine(cluster.worker(0)),
              ContainsRegex("(the job is|part in the job is done).*\\(exit code 0\\)"));
  EXPECT_THAT(LastLine(cluster.evaluator(0)), ContainsRegex("the job is over.*\\(exit code 0\\)"));
}

TEST(LogsTest, LastLinesNameSignalsAndFailures) {
  TestCluster cluster({Job("epochs: 1000000 faults { connect_timeout_seconds: 3 }"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  cluster.worker(1).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(1), 0));
  EXPECT_THAT(LastLine(cluster.worker(1)), HasSubstr("a signal asked this worker to end (exit code 0)"));
  cluster.Kill(cluster.server(1));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
  EXPECT_THAT(LastLine(cluster.server(0)), StartsWith("catchment_server: "));
  EXPECT_THAT(LastLine(cluster.server(0)), HasSubstr(" (exit code 1)"));
}

TEST(LogsTest, JsonHasTheStoryOfAJobInTheNamesOfMetrics) {
  TestCluster cluster({.job = Job("epochs: 10 evaluation { every_epochs: 5 }"),
                       .servers = 2,
                       .flags = {"--log_format=json"}});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const Json summary = cluster.Summary();
  const std::vector<Json> master = Objects(cluster.server(0));
  const std::vector<Json> scores = WithEvent(master, "evaluation");
  ASSERT_FALSE(scores.empty());
  EXPECT_EQ(scores.back()["test_accuracy"], summary["test_accuracy"]);
  EXPECT_EQ(scores.back()["tested_at_samples"], summary["samples"]);
  const std::vector<Json> progress = WithEvent(master, "progress");
  ASSERT_FALSE(progress.empty());
  EXPECT_LE(progress.size(), 10u);
  EXPECT_GT(progress[0]["samples"], 0);
  EXPECT_TRUE(progress[0]["samples_per_second"].is_number());
  EXPECT_FALSE(WithEvent(master, "event").empty());
  for (const Process* daemon :
       {&cluster.server(0), &cluster.server(1), &cluster.worker(0), &cluster.evaluator(0)}) {
    const std::vector<Json> objects = Objects(*daemon);
    ASSERT_FALSE(objects.empty());
    for (const Json& object : objects) {
      for (const char* key : {"time", "severity", "program", "pid", "source", "message"})
        EXPECT_TRUE(object.contains(key)) << object;
    }
    EXPECT_EQ(objects.back()["event"], "end") << objects.back();
    EXPECT_EQ(objects.back()["exit_code"], 0) << objects.back();
  }
}

TEST(LogsTest, JsonNamesTheReasonOfAFailure) {
  const Finished worker = RunToEnd(
      {WorkerProgram(), "--master=127.0.0.1:1", "--connect_timeout_seconds=0.1", "--log_format=json"});
  EXPECT_EQ(worker.end.exit_code, 1);
  const std::vector<std::string> lines = absl::StrSplit(worker.output, '\n', absl::SkipEmpty());
  ASSERT_FALSE(lines.empty());
  const Json end = Json::parse(lines.back(), nullptr, /*allow_exceptions=*/false);
  ASSERT_TRUE(end.is_object()) << worker.output;
  EXPECT_EQ(end["event"], "end");
  EXPECT_EQ(end["exit_code"], 1);
  EXPECT_THAT(std::string(end["message"]), HasSubstr("master at 127.0.0.1:1"));
}

}  // namespace
}  // namespace catchment
