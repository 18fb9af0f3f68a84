// Workers that come, stop, come back and leave while a job runs.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

// Long enough to see all that happens; such a job is ended by its test.
constexpr char kEndless[] = "epochs: 1000000 ";
constexpr char kShortTimeout[] = "faults { heartbeat_timeout_seconds: 2 } ";

class ChangingWorkersTest : public testing::TestWithParam<std::string> {
 protected:
  static std::string Job(int workers, const std::string& more = "") {
    return SmallJob(GetParam(), absl::StrCat(kEndless, "batch_size: 32 workers: ", workers, " ", more));
  }

  // Ends the endless job.
  static void Finish(TestCluster* cluster) {
    cluster->server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster->AwaitOrderlyEnd());
    EXPECT_EQ(cluster->Summary()["phase"], "STOPPED");
  }
};

TEST_P(ChangingWorkersTest, OneJoinsARunningJob) {
  TestCluster cluster({Job(1), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitStatus("the second to take part", AllHaveTrained(2, 1000)));
  Finish(&cluster);
}

TEST_P(ChangingWorkersTest, OneFindsTheMasterInTheDirectoryOfItsRunAndNoOther) {
  TestCluster cluster({Job(1)});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorker({"--master=" + cluster.out_dir()});
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  // A run whose master was killed, and at whose address this job's master is now.
  const std::string stale = TestDirectory() + "/stale";
  std::filesystem::create_directories(stale);
  std::filesystem::copy_file(cluster.out_dir() + "/master.address", stale + "/master.address");
  std::ofstream(stale + "/master.run") << "0000000000000007\n";
  Process& stranger = cluster.StartWorker({"--master=" + stale});
  ASSERT_TRUE(cluster.AwaitExit(stranger, 1));
  EXPECT_THAT(stranger.Output(), testing::HasSubstr("is that of another run"));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 0));
}

TEST_P(ChangingWorkersTest, OneThatIsStoppedLosesItsLeaseAndComesBack) {
  TestCluster cluster({Job(2, kShortTimeout), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1000)));
  cluster.worker(1).Signal(SIGSTOP);
  ASSERT_TRUE(
      cluster.AwaitStatus("the lease to run out", [](const auto& s) { return s.workers_size() == 1; }));
  const uint64_t before = cluster.Status()->samples();
  ASSERT_TRUE(cluster.AwaitTrained(before + 5000)) << "the other one does not go on";

  cluster.worker(1).Signal(SIGCONT);
  ASSERT_TRUE(cluster.AwaitOutput(cluster.worker(1), "registering again"));
  ASSERT_TRUE(cluster.AwaitStatus("it to take part again", AllHaveTrained(2, 1000)));
  Finish(&cluster);
}

TEST_P(ChangingWorkersTest, OneThatIsToldToEndLeavesInOrder) {
  TestCluster cluster({Job(2), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1000)));
  cluster.worker(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0));
  EXPECT_TRUE(cluster.AwaitOutput(cluster.server(0), "left: asked to stop"));
  const uint64_t before = cluster.Status()->samples();
  ASSERT_TRUE(cluster.AwaitTrained(before + 5000)) << "the other one does not go on";
  Finish(&cluster);
}

TEST_P(ChangingWorkersTest, JobWithoutWorkersWaitsForNewOnes) {
  TestCluster cluster({Job(1), /*servers=*/1});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  cluster.worker(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0));
  const auto waits = [](const v1::JobStatus& status) {
    return status.phase() == v1::JobStatus::WAITING &&
           status.reason().find("no worker is left") != std::string::npos;
  };
  ASSERT_TRUE(cluster.AwaitStatus("the job to say that it waits", waits));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitStatus("the new one to train", AllHaveTrained(1, 1000)));
  Finish(&cluster);
}

INSTANTIATE_TEST_SUITE_P(All, ChangingWorkersTest, testing::Values("sync", "downpour", "easgd", "ssp"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
