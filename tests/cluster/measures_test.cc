// All measures of real jobs are in the outputs that their tables name (common/measures).
#include "common/measures/measures.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using nlohmann::json;

// Each of these jobs measures what the others do not.
constexpr std::pair<const char*, const char*> kJobs[] = {
    {"sync",
     "optimizer { schedule { decay: PLATEAU factor: 0.5 patience: 0 threshold: 0.9 final_fraction: 0.125 } "
     "}"},
    {"staleness_aware", ""},
    {"decoupled_diloco", ""},
};
// The machine may have no meter of energy; a simulation measures the next ones; no target is set.
const std::set<std::string> kMaybeUnknown = {"processor_joules", "gpu_joules", "energy_hosts",
                                             "goodput",          "uptime",     "busiest_second_bytes",
                                             "ended_early"};

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::string MetricsOf(Process& daemon) {
  const std::string mark = "metrics are at http://127.0.0.1:";
  EXPECT_TRUE(Await([&] { return absl::StrContains(daemon.Output(), mark); }));
  const std::string output = daemon.Output();
  const int port = atoi(output.c_str() + output.find(mark) + mark.size());
  return HttpGet(port, "/metrics").body;
}

// Expects that the page has what is known of a reading under the names with this beginning.
template <typename Reading>
void ExpectOnPage(absl::Span<const Measure<Reading>> measures, const std::string& beginning,
                  const Reading& reading, const std::string& page) {
  for (const Measure<Reading>& measure : measures) {
    const std::string written = measure.prometheus;
    if (!absl::StartsWith(written, beginning) || written.empty()) continue;
    if (measure.Read(reading).is_null()) continue;
    const std::string name = absl::StrReplaceAll(written, {{"=", "=\""}, {"}", "\"}"}});
    const bool labelled = absl::StrContains(name, '{') || beginning == "catchment_member_";
    EXPECT_TRUE(absl::StrContains(page, absl::StrCat("\n", name, labelled ? "" : " ")) ||
                absl::StrContains(page, absl::StrCat("\n", name, "_count ")))
        << name << " is not in\n"
        << page;
  }
}

template <typename Reading>
void ExpectIn(absl::Span<const Measure<Reading>> measures, unsigned in, const json& object,
              std::set<std::string>* known) {
  for (const Measure<Reading>& measure : measures) {
    if ((measure.in & in) == 0) continue;
    EXPECT_TRUE(object.contains(measure.key)) << measure.key << " is not in " << object.dump();
    if (!object[measure.key].is_null()) known->insert(measure.key);
  }
}

// Trains one of kJobs. Adds the measures that were known.
void Check(const std::string& preset, const std::string& more, std::set<std::string>* known) {
  SCOPED_TRACE(preset);
  TestCluster cluster(
      {.job = SmallJob(preset, absl::StrCat("workers: 2 batch_size: 16 epochs: 1000000 ",
                                            "evaluation { every_epochs: 0.5 keep_best: true } "
                                            "checkpoint { every_updates: 20 } ",
                                            more)),
       .servers = 2,
       .directory = absl::StrCat(TestDirectory(), "/", preset),
       .flags = {"--metrics_port=0"}});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(8000));
  ASSERT_TRUE(cluster.AwaitStatus("a best score", [](const v1::JobStatus& status) {
    return status.best_evaluation() > 0 && status.last_checkpoint() > 0;
  }));
  const v1::JobStatus status = *cluster.Status();
  const std::string master = MetricsOf(cluster.server(0));
  ExpectOnPage(JobMeasures(), "", JobReading(status), master);
  ExpectOnPage(WorkerMeasures(), "catchment_member_", {status.workers(0), nullptr}, master);
  ExpectOnPage(WorkerMeasures(), "catchment_worker_", {status.workers(0), nullptr},
               MetricsOf(cluster.worker(0)));
  ExpectOnPage(ShardMeasures(), "", {1, &status.shards(1), nullptr}, MetricsOf(cluster.server(1)));
  const Finished said = RunToEnd({Runfile("cli/catchment"), "status", cluster.master(), "--json"});
  const json object = json::parse(said.output, nullptr, false);
  ASSERT_TRUE(object.is_object()) << said.output;
  ExpectIn(JobMeasures(), kInStatus, object, known);
  std::set<std::string> members;
  ExpectIn(WorkerMeasures(), kInStatus, object["workers"][0], &members);
  ExpectIn(ShardMeasures(), kInStatus, object["shards"][0], &members);
  ExpectIn(PushMeasures(), kInStatus, object["shards"][0], &members);

  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const json summary = cluster.Summary();
  ExpectIn(JobMeasures(), kInSummary, summary, known);
  ExpectIn(PushMeasures(), kInSummary | kOfWorkersOnly, summary["per_worker"][0], &members);
  ExpectIn(ShardMeasures(), kInSummary, summary["per_shard"][0], &members);
  std::set<std::string> in_lines = {"staleness_counts"};
  for (const auto& text :
       absl::StrSplit(ReadAll(cluster.out_dir() + "/metrics.jsonl"), '\n', absl::SkipEmpty())) {
    const json line = json::parse(std::string(text));
    ExpectIn(JobMeasures(), kInLines, line, &in_lines);
    for (const json& worker : line.value("worker_rates", json::array()))
      ExpectIn(WorkerMeasures(), kInLines, worker, &members);
  }
  std::string events;
  for (const auto& entry : std::filesystem::directory_iterator(cluster.out_dir() + "/tensorboard"))
    events += ReadAll(entry.path());
  for (const Measure<JobReading>& measure : JobMeasures()) {
    if (in_lines.count(measure.key) == 0) continue;
    EXPECT_TRUE(absl::StrContains(events, measure.tag)) << measure.tag;
  }
  known->insert(in_lines.begin(), in_lines.end());
}

TEST(MeasuresTest, AreInTheOutputsThatTheirTablesName) {
  std::set<std::string> known;
  for (const auto& [preset, more] : kJobs) Check(preset, more, &known);
  for (const Measure<JobReading>& measure : JobMeasures())
    EXPECT_TRUE(known.count(measure.key) > 0 || kMaybeUnknown.count(measure.key) > 0)
        << measure.key << " was unknown in all jobs";
}

}  // namespace
}  // namespace catchment
