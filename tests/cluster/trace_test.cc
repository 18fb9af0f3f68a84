// --trace of the daemons: the JSON that viewers open.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "absl/strings/strip.h"
#include "common/trace/trace_file.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using nlohmann::json;
using testing::HasSubstr;
using testing::IsSupersetOf;

// Times have three decimals of a microsecond.
constexpr double kRounding = 0.01;

struct Span {
  std::string process;
  std::string thread;  // its name; empty: it has none
  int64_t tid = 0;
  std::string name;
  double begin = 0;  // microseconds
  double end = 0;
  json args;
};

struct JoinedTrace {
  std::vector<Span> spans;
  std::map<std::string, json> processes;  // by name
};

JoinedTrace Read(const std::string& directory) {
  EXPECT_TRUE(JoinTraceDirectory(directory).ok());
  json file;
  std::ifstream(directory + "/" + kJoinedTrace) >> file;
  JoinedTrace trace;
  std::vector<std::string> names;
  for (const json& facts : file["otherData"]["processes"]) {
    names.push_back(facts["process"]);
    trace.processes[names.back()] = facts;
  }
  std::map<std::pair<int, int64_t>, std::string> threads;
  for (const json& event : file["traceEvents"]) {
    if (event["name"] == "thread_name") threads[{event["pid"], event["tid"]}] = event["args"]["name"];
  }
  for (const json& event : file["traceEvents"]) {
    if (event["ph"] != "X") continue;
    const double begin = event["ts"];
    const auto thread = threads.find({event["pid"], event["tid"]});
    trace.spans.push_back({names[event["pid"].get<int>() - 1], thread == threads.end() ? "" : thread->second,
                           event["tid"], event["name"], begin, begin + event["dur"].get<double>(),
                           event.value("args", json())});
  }
  return trace;
}

// In seconds.
double ErrorOf(const JoinedTrace& trace, const std::string& process) {
  return trace.processes.at(process)["clock_error_seconds"];
}

std::set<std::string> NamesOf(const JoinedTrace& trace, const std::string& process) {
  std::set<std::string> names;
  for (const Span& span : trace.spans) {
    if (span.process == process) names.insert(span.name);
  }
  return names;
}

// Fails if two spans of a thread overlap, and neither is in the other.
void ExpectNested(const JoinedTrace& trace) {
  std::map<std::pair<std::string, int64_t>, std::vector<Span>> threads;
  for (const Span& span : trace.spans) threads[{span.process, span.tid}].push_back(span);
  for (auto& [thread, spans] : threads) {
    std::stable_sort(spans.begin(), spans.end(), [](const Span& a, const Span& b) {
      return a.begin != b.begin ? a.begin < b.begin : a.end > b.end;
    });
    std::vector<Span> open;
    for (const Span& span : spans) {
      while (!open.empty() && open.back().end <= span.begin + kRounding) open.pop_back();
      if (!open.empty()) {
        EXPECT_LE(span.end, open.back().end + kRounding)
            << span.name << " in " << open.back().name << " of " << thread.first;
      }
      open.push_back(span);
    }
  }
}

// Returns the share of the time from a worker's first step to its last for which no phase accounts.
double Unaccounted(const JoinedTrace& trace, const std::string& worker) {
  double begin = 0, end = 0, phases = 0;
  for (const Span& span : trace.spans) {
    if (span.process != worker || span.name != "step") continue;
    if (begin == 0) begin = span.begin;
    end = span.end;
  }
  for (const Span& span : trace.spans) {
    const bool is_phase = span.name == "step" || span.name == "data";
    if (span.process == worker && is_phase && span.begin >= begin)
      phases += std::min(span.end, end) - std::min(span.begin, end);
  }
  return 1 - phases / (end - begin);
}

// Fails if a server did not begin to apply a block between the times at which the worker sent it and had the
// answer.
void ExpectAppliedBetweenSendAndAnswer(const JoinedTrace& trace) {
  const auto key = [](const std::string& server, const json& args) {
    return std::make_tuple(server, args["worker"].get<int>(), args["block"].get<int>(),
                           args["push"].get<int>());
  };
  std::map<decltype(key("", json())), Span> applied;
  for (const Span& span : trace.spans) {
    if (span.name == "apply") applied[key(span.process, span.args)] = span;
  }
  int compared = 0;
  for (const Span& span : trace.spans) {
    absl::string_view server = span.thread;
    if (span.name != "network" || !absl::ConsumePrefix(&server, "network to ")) continue;
    const auto found = applied.find(key(std::string(server), span.args));
    if (found == applied.end()) continue;
    const double error = 1e6 * (ErrorOf(trace, std::string(server)) + ErrorOf(trace, span.process));
    EXPECT_GE(found->second.begin, span.begin - error - kRounding);
    EXPECT_LE(found->second.begin, span.end + error + kRounding);
    ++compared;
  }
  EXPECT_GT(compared, 0);
}

TEST(TraceTest, ShowsWhatAllProcessesDo) {
  const std::string directory = TestDirectory() + "/trace";
  TestCluster cluster({.job = SmallJob("sync",
                                       "workers: 2 batch_size: 256 epochs: 20 faults { standby: 1 } "
                                       "compression { push: BFLOAT16 }"),
                       .servers = 2,
                       .flags = {"--trace=" + directory}});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const JoinedTrace trace = Read(directory);
  ASSERT_EQ(trace.processes.size(), 5);
  for (const auto& [name, facts] : trace.processes) {
    EXPECT_TRUE(facts["clock_error_seconds"].is_number()) << name;
    EXPECT_GT(facts["spans"], 0) << name;
  }
  EXPECT_EQ(trace.processes.at("server 0")["clock_error_seconds"], 0);
  for (const std::string worker : {"worker 0", "worker 1"}) {
    EXPECT_THAT(NamesOf(trace, worker), IsSupersetOf({"step", "forward", "backward", "backward dense1",
                                                      "encode", "wait", "network", "load"}));
    EXPECT_LT(Unaccounted(trace, worker), 0.1);
  }
  for (const std::string server : {"server 0", "server 1"})
    EXPECT_THAT(NamesOf(trace, server), IsSupersetOf({"apply", "gate", "standby", "checkpoint"}));
  EXPECT_EQ(NamesOf(trace, "evaluator").count("evaluator"), 1);
  ExpectNested(trace);
  ExpectAppliedBetweenSendAndAnswer(trace);
}

TEST(TraceTest, TrainingGoesOnIfTheDirectoryCannotBeWritten) {
  const std::string file = TestDirectory() + "/a_file";
  std::ofstream(file) << "text";
  TestCluster cluster({.job = SmallJob("sync", "workers: 1 batch_size: 32 epochs: 2"),
                       .flags = {"--trace=" + file + "/trace"}});
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_THAT(cluster.worker(0).Output(), HasSubstr("no trace is recorded: "));
}

}  // namespace
}  // namespace catchment
