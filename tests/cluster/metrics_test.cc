// --metrics_port of the daemons, as Prometheus reads it. tests/cluster/prometheus_test.sh has Prometheus
// itself.

#include <csignal>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

// Returns the page with the metrics.
std::string Get(int port) {
  const HttpAnswer answer = HttpGet(port, "/metrics");
  EXPECT_EQ(answer.status, 200);
  return answer.body;
}

// Returns the value of a metric without labels, or with them as they are written. A test failure if it is not
// there.
double Value(const std::string& page, const std::string& name) {
  for (absl::string_view line : absl::StrSplit(page, '\n')) {
    double value = 0;
    if (absl::ConsumePrefix(&line, name + " ") && absl::SimpleAtod(line, &value)) return value;
  }
  ADD_FAILURE() << "there is no " << name << " in\n" << page;
  return -1;
}

int MetricsPort(Process& daemon) {
  const std::string mark = "metrics are at http://127.0.0.1:";
  EXPECT_TRUE(Await([&] { return absl::StrContains(daemon.Output(), mark); }));
  const std::string output = daemon.Output();
  return atoi(output.c_str() + output.find(mark) + mark.size());
}

TEST(MetricsTest, EveryDaemonServesWhatTheStatusSays) {
  TestCluster cluster({.job = SmallJob("downpour",
                                       "workers: 2 batch_size: 32 epochs: 1000000 "
                                       "faults { standby: 1 }"),
                       .servers = 2,
                       .flags = {"--metrics_port=0"}});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  ASSERT_TRUE(
      cluster.AwaitStatus("a score", [](const v1::JobStatus& status) { return status.test_samples() > 0; }));
  const int master = MetricsPort(cluster.server(0));
  const uint64_t before = cluster.Status()->samples();
  const std::string page = Get(master);
  const uint64_t after = cluster.Status()->samples();
  EXPECT_GE(Value(page, "catchment_samples_total"), before);
  EXPECT_LE(Value(page, "catchment_samples_total"), after);
  EXPECT_EQ(Value(page, "catchment_job_phase{phase=\"TRAINING\"}"), 1);
  EXPECT_EQ(Value(page, "catchment_workers"), 2);
  EXPECT_GT(Value(page, "catchment_staleness_updates_count"), 0);
  EXPECT_GT(Value(page, "catchment_phase_seconds_total{phase=\"compute\"}"), 0);
  EXPECT_GT(Value(page, "catchment_test_accuracy_ratio"), 0);
  EXPECT_GE(Value(page, "catchment_standby_unacknowledged_changes"), 0);
  const std::string server = Get(MetricsPort(cluster.server(1)));
  EXPECT_GT(Value(server, "catchment_shard_version"), 0);
  EXPECT_GT(Value(server, "process_resident_memory_bytes"), 1 << 20);
  EXPECT_GT(Value(Get(MetricsPort(cluster.worker(0))), "catchment_worker_samples_total"), 0);
  EXPECT_GT(Value(Get(MetricsPort(cluster.evaluator(0))), "catchment_evaluations_total"), 0);
  // Requests for anything else.
  for (const std::string& path :
       {std::string(20'000, '/'), "/" + std::string(20'000, 'x'), std::string("/../../etc/passwd")})
    EXPECT_EQ(HttpGet(master, path).status / 100, 4) << path.size();
  EXPECT_GT(Value(Get(master), "catchment_samples_total"), 0);
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

TEST(MetricsTest, TrainingGoesOnIfThePortIsTaken) {
  TestCluster other({SmallJob("sync", "workers: 1 batch_size: 32 epochs: 1000000")});
  TestCluster cluster({.job = SmallJob("sync", "workers: 1 batch_size: 32 epochs: 2"),
                       .directory = TestDirectory() + "/taken"});
  ASSERT_TRUE(other.StartMaster());
  std::vector<std::string> flags = {"--metrics_port=" + other.master()};
  ASSERT_TRUE(cluster.StartMaster());
  cluster.StartEvaluator();
  cluster.StartWorker(flags);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_THAT(cluster.worker(0).Output(), HasSubstr("cannot serve metrics at " + other.master()));
  other.server(0).Signal(SIGTERM);
  ASSERT_TRUE(other.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
