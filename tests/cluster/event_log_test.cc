// The events of a deterministic job are those of its simulation, and the control plane's calls can be made
// again from its log.
#include <google/protobuf/text_format.h>

#include <algorithm>
#include <regex>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/job/validate.h"
#include "gmock/gmock.h"
#include "simulation/simulation.h"
#include "tests/cluster/test_cluster.h"
#include "tests/server/control/replay.h"

namespace catchment {
namespace {

// Replaces hosts, numbers of processes and addresses, and sorts members that leave one after the other: each
// of them leaves as soon as it has heard that it is done, in no particular order.
template <typename Events>
std::vector<std::string> Comparable(const Events& events) {
  static const std::regex* const process = new std::regex(R"(\([^()]*:\d+\))");
  static const std::regex* const address = new std::regex(R"( is at .*)");
  std::vector<std::string> texts;
  for (const std::string& event : events) {
    texts.push_back(std::regex_replace(event, *process, "(process)"));
    texts.back() = std::regex_replace(texts.back(), *address, " is at ADDRESS");
  }
  const auto leaves = [](const std::string& text) { return absl::StrContains(text, " left: "); };
  for (auto begin = texts.begin(); begin != texts.end();) {
    begin = std::find_if(begin, texts.end(), leaves);
    const auto end = std::find_if_not(begin, texts.end(), leaves);
    std::sort(begin, end);
    begin = end;
  }
  return texts;
}

std::vector<std::string> Simulated(const std::string& text) {
  v1::Job job;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &job));
  const absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  EXPECT_TRUE(filled.ok()) << filled.status();
  SimulationOptions options;
  options.servers = 2;
  options.step = Distribution{.kind = Distribution::kConstant, .mean = 0.01};
  const absl::StatusOr<v1::JobStatus> status = Simulate(*filled, options);
  EXPECT_TRUE(status.ok()) << status.status();
  return Comparable(status->events());
}

// Members register one after the other, so that their indexes are in the order of events.
std::vector<std::string> Real(const std::string& text) {
  const std::string log = TestDirectory() + "/control.log";
  TestCluster cluster(
      {.job = text, .servers = 2, .keeps_checkpoints = false, .master_flags = {"--control_log=" + log}});
  EXPECT_TRUE(cluster.StartServers());
  cluster.StartEvaluator();
  EXPECT_TRUE(cluster.AwaitStatus("an evaluator",
                                  [](const v1::JobStatus& status) { return status.evaluators() > 0; }));
  for (int workers : {1, 2}) {
    cluster.StartWorkers(1);
    if (workers == 2) break;
    EXPECT_TRUE(cluster.AwaitStatus("a worker",
                                    [](const v1::JobStatus& status) { return status.workers_size() == 1; }));
  }
  EXPECT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(ReplayFile(log), "");
  return Comparable(ReplayedEvents(log));
}

TEST(EventLogTest, RealAndSimulatedJobsHaveTheSameEvents) {
  const std::string job = SmallJob("sync", "deterministic: true workers: 2 batch_size: 50 epochs: 2");
  const std::vector<std::string> simulated = Simulated(job);
  EXPECT_THAT(simulated, testing::Contains("worker 1 (process) joined"));
  EXPECT_EQ(Real(job), simulated);
}

}  // namespace
}  // namespace catchment
