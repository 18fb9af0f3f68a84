#include "common/trace/recorder.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "absl/strings/str_cat.h"
#include "common/trace/clock_offset.h"
#include "common/trace/trace_file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/base/settable_clock.h"

namespace catchment {
namespace {

using nlohmann::json;
using testing::HasSubstr;

std::vector<json> Spans(const json& file) {
  std::vector<json> spans;
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] == "X") spans.push_back(event);
  }
  return spans;
}

TEST(ClockOffset, ShortestRoundTripCounts) {
  ClockOffset offset;
  EXPECT_FALSE(offset.estimate());
  offset.Add(/*sent=*/10, /*master=*/1010.5, /*received=*/12);
  EXPECT_DOUBLE_EQ(offset.estimate()->seconds, 999.5);
  EXPECT_DOUBLE_EQ(offset.estimate()->error, 1);
  offset.Add(20, 1020.05, 20.2);
  EXPECT_NEAR(offset.estimate()->seconds, 999.95, 1e-9);
  EXPECT_NEAR(offset.estimate()->error, 0.1, 1e-9);
  offset.Add(30, 1030.5, 34);
  EXPECT_NEAR(offset.estimate()->seconds, 999.95, 1e-9);
}

TEST(ClockOffset, ReadingThatContradictsBeginsAnew) {
  ClockOffset offset;
  offset.Add(10, 1010, 10.002);
  offset.Add(20, 520, 21);
  EXPECT_DOUBLE_EQ(offset.estimate()->seconds, 499.5);
  EXPECT_DOUBLE_EQ(offset.estimate()->error, 0.5);
}

TEST(TraceRecorder, DropsTheOldestAndCountsThem) {
  SettableClock clock;
  TraceRecorder recorder(&clock, /*capacity=*/3);
  for (int i = 0; i < 5; ++i) recorder.Record(absl::StrCat("span ", i), i, i + 1);
  const RecordedTrace trace = recorder.recorded();
  ASSERT_EQ(trace.spans.size(), 3);
  EXPECT_EQ(trace.spans[0].name, "span 2");
  EXPECT_EQ(trace.spans[2].name, "span 4");
  EXPECT_EQ(trace.dropped, 2);
}

TEST(TraceRecorder, BoundsTheNumberOfNames) {
  SettableClock clock;
  TraceRecorder recorder(&clock, /*capacity=*/6000);
  for (int i = 0; i < 6000; ++i) recorder.Record(absl::StrCat("span ", i), i, i + 1);
  std::set<std::string> names;
  for (const RecordedTrace::Span& span : recorder.recorded().spans) names.insert(span.name);
  EXPECT_LT(names.size(), 5000);
  EXPECT_EQ(names.count("(other)"), 1);
}

TEST(TraceScope, RecordsOnlyWithARecorder) {
  SettableClock clock;
  TraceRecorder recorder(&clock);
  { const TraceScope nothing("before"); }
  SetTrace(&recorder);
  {
    const TraceScope scope("forward");
    clock.Advance(2);
  }
  SetTrace(nullptr);
  { const TraceScope nothing("after"); }
  const RecordedTrace trace = recorder.recorded();
  ASSERT_EQ(trace.spans.size(), 1);
  EXPECT_EQ(trace.spans[0].name, "forward");
  EXPECT_EQ(trace.spans[0].begin, 1000);
  EXPECT_EQ(trace.spans[0].end, 1002);
}

TEST(TraceJson, TimesAreOnTheMastersClock) {
  SettableClock clock;
  TraceRecorder recorder(&clock);
  recorder.SetProcess("worker 3");
  recorder.NameThread("training");
  recorder.AddReading(/*sent=*/1, /*master=*/50, /*received=*/1.5);
  recorder.Record("step", 2, 4);
  recorder.RecordOn("network to server 0", "network", 2.5, 3, TraceBlock{3, 1, 7});
  const json file = json::parse(TraceJson({"catchment_worker", "node1", 42}, recorder.recorded()));
  const json& facts = file["otherData"];
  EXPECT_EQ(facts["process"], "worker 3");
  EXPECT_EQ(facts["host"], "node1");
  EXPECT_EQ(facts["clock_offset_seconds"], 48.75);
  EXPECT_EQ(facts["clock_error_seconds"], 0.25);
  EXPECT_EQ(facts["dropped_spans"], 0);
  const std::vector<json> spans = Spans(file);
  ASSERT_EQ(spans.size(), 2);
  EXPECT_EQ(spans[0]["name"], "step");
  EXPECT_EQ(spans[0]["ts"], 50.75e6);
  EXPECT_EQ(spans[0]["dur"], 2e6);
  EXPECT_EQ(spans[1]["args"], json({{"worker", 3}, {"block", 1}, {"push", 7}}));
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
}

TEST(TraceJson, SpansOfALaneThatOverlapAreOnSeveralThreads) {
  SettableClock clock;
  TraceRecorder recorder(&clock);
  recorder.RecordOn("network", "a", 0, 2);
  recorder.RecordOn("network", "b", 1, 3);
  recorder.RecordOn("network", "c", 2, 4);
  const std::vector<json> spans =
      Spans(json::parse(TraceJson({"catchment_worker", "node1", 42}, recorder.recorded())));
  ASSERT_EQ(spans.size(), 3);
  EXPECT_NE(spans[0]["tid"], spans[1]["tid"]);
  EXPECT_EQ(spans[0]["tid"], spans[2]["tid"]);
}

TEST(TraceJson, NamesOfProgramsAreEscaped) {
  SettableClock clock;
  TraceRecorder recorder(&clock);
  recorder.RecordOf(7, "a \"name\" \xff", 0, 1);
  const json file = json::parse(TraceJson({"catchment_worker", "node1", 42}, recorder.recorded()));
  EXPECT_THAT(Spans(file)[0]["name"].get<std::string>(), HasSubstr("a \"name\" "));
}

TEST(TraceJson, AMinuteOfTwoServersAndFourWorkersIsUnder20MB) {
  SettableClock clock;
  TraceRecorder recorder(&clock);
  // As long as they are on a machine that has been up for months.
  for (size_t i = 0; i < 2 * TraceRecorder::kUsualCapacity; ++i) {
    const double begin = 2e7 + 0.001 * static_cast<double>(i);
    recorder.RecordOn("gate: worker 3", "gate", begin, begin + 0.01, TraceBlock{3, 10, 1'000'000 + i});
  }
  const size_t bytes = TraceJson({"catchment_server", "node1", 4'000'000}, recorder.recorded()).size();
  EXPECT_LT(7 * bytes, 20'000'000) << "with an evaluator, if all spans have as many digits";
}

TEST(JoinTraces, GivesEachProcessItsNumber) {
  const std::string directory = absl::StrCat(testing::TempDir(), "/join");
  ASSERT_TRUE(PrepareTraceDirectory(directory).ok());
  EXPECT_EQ(JoinTraceDirectory(directory).status().code(), absl::StatusCode::kNotFound);
  SettableClock clock;
  TraceRecorder recorder(&clock);
  recorder.Record("step", 2, 4);
  for (const std::string host : {"node0", "node1"}) {
    std::ofstream(absl::StrCat(directory, "/spans-", host, "-42.json"))
        << TraceJson({"catchment_worker", host, 42}, recorder.recorded());
  }
  ASSERT_EQ(JoinTraceDirectory(directory)->joined.size(), 2u);
  json joined;
  std::ifstream(absl::StrCat(directory, "/", kJoinedTrace)) >> joined;
  const std::vector<json> spans = Spans(joined);
  ASSERT_EQ(spans.size(), 2);
  EXPECT_NE(spans[0]["pid"], spans[1]["pid"]);
  EXPECT_EQ(joined["otherData"]["processes"][1]["host"], "node1");
  std::ofstream(absl::StrCat(directory, "/spans-node2-1.json")) << "{}";
  EXPECT_THAT(std::string(JoinTraceDirectory(directory).status().message()),
              HasSubstr("spans-node2-1.json is not"));
}

TEST(JoinTraces, LeavesOutEarlierRunsAndKeepsThoseBeforeARecovery) {
  const std::string directory = absl::StrCat(testing::TempDir(), "/again");
  ASSERT_TRUE(PrepareTraceDirectory(directory).ok());
  SettableClock clock;
  const auto write = [&](const std::string& host, std::vector<uint64_t> runs, int age) {
    TraceRecorder recorder(&clock);
    recorder.Record("step", 2, 4);
    for (const uint64_t run : runs) recorder.AddRun(run);
    const std::string path = absl::StrCat(directory, "/spans-", host, "-42.json");
    std::ofstream(path) << TraceJson({"catchment_worker", host, 42}, recorder.recorded());
    std::filesystem::last_write_time(path,
                                     std::filesystem::file_time_type::clock::now() - std::chrono::hours(age));
  };
  write("old", {1}, 3);
  write("lost", {2}, 2);  // before the recovery
  write("recovered", {2, 3}, 1);
  write("new", {3}, 0);
  write("stray", {}, 0);  // has never had the job
  const absl::StatusOr<JoinedFiles> files = JoinTraceDirectory(directory);
  ASSERT_TRUE(files.ok()) << files.status();
  EXPECT_THAT(files->joined,
              testing::ElementsAre("spans-lost-42.json", "spans-new-42.json", "spans-recovered-42.json"));
  EXPECT_THAT(files->left_out, testing::ElementsAre("spans-old-42.json", "spans-stray-42.json"));
  EXPECT_TRUE(JoinTraceDirectory(directory).ok()) << "it replaces its own file";
  std::ofstream(absl::StrCat(directory, "/", kJoinedTrace)) << "{\"traceEvents\": []}";
  EXPECT_THAT(std::string(JoinTraceDirectory(directory).status().message()),
              HasSubstr("trace.json was not written by Catchment"));
}

TEST(PrepareTraceDirectory, NamesADirectoryThatCannotBeCreated) {
  const std::string file = absl::StrCat(testing::TempDir(), "/a_file");
  std::ofstream(file) << "text";
  EXPECT_THAT(std::string(PrepareTraceDirectory(file + "/trace").message()), HasSubstr(file));
}

}  // namespace
}  // namespace catchment
