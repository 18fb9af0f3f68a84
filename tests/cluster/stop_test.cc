// Jobs that end before their budget is spent: on request, or because a server has ended.
#include <csignal>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

std::string Job(const std::string& preset, const std::string& more = "") {
  return SmallJob(preset, absl::StrCat("workers: 2 batch_size: 32 epochs: 1000000 ", more));
}

TEST(StopTest, ServerThatIsToldToEndEndsTheJobInOrder) {
  TestCluster cluster({Job("sync"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  cluster.server(1).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "STOPPED");
  EXPECT_THAT(std::string(summary["reason"]), HasSubstr("server 1 is shutting down"));
  EXPECT_GT(summary["last_checkpoint"], 0);
}

TEST(StopTest, JobThatStillWaitsForWorkersEndsAtOnce) {
  TestCluster cluster({Job("downpour"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(1));  // of two
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "worker 0"));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["phase"], "STOPPED");
}

TEST(StopTest, MasterThatStillWaitsForServersEnds) {
  TestCluster cluster({Job("sync"), /*servers=*/2});
  ASSERT_TRUE(cluster.StartMaster());
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

// Batch systems send these before a limit, and SIGTERM later.
TEST(StopTest, WarningsOfABatchSystemLeaveTheJobToSigterm) {
  for (const int warning : {SIGUSR1, SIGUSR2}) {
    const std::string name = strsignal(warning);
    TestCluster cluster({Job("downpour"), /*servers=*/2, absl::StrCat(TestDirectory(), "/", warning)});
    ASSERT_TRUE(cluster.Start(2)) << name;
    ASSERT_TRUE(cluster.AwaitTrained(2000)) << name;
    for (Process* daemon : {&cluster.server(0), &cluster.server(1), &cluster.worker(0)})
      daemon->Signal(warning);
    const absl::StatusOr<v1::JobStatus> status = cluster.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 4000)) << name;
    cluster.worker(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster.AwaitExit(cluster.worker(0), 0)) << name;
    cluster.server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd()) << name;
    EXPECT_EQ(cluster.Summary()["phase"], "STOPPED") << name;
    EXPECT_GT(cluster.Summary()["last_checkpoint"], 0) << name;
  }
}

// As when a terminal is closed, or a program is to open its log again.
TEST(StopTest, HangupEndsNoDaemon) {
  TestCluster cluster({Job("sync"), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  for (Process* daemon : {&cluster.server(0), &cluster.server(1), &cluster.worker(0)}) daemon->Signal(SIGHUP);
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 4000));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_THAT(std::string(cluster.Summary()["reason"]), HasSubstr("the master is shutting down"));
}

// As when the reader of `2>&1 | tee server.log` is ended.
TEST(StopTest, ServersWhoseLogHasNoReaderAnyMoreGoOnAndEndInOrder) {
  TestCluster cluster({.job = SmallJob("sync", "workers: 2 batch_size: 32 epochs: 4"),
                       .servers = 2,
                       .servers_lose_their_log = true});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  for (int i = 0; i < 2; ++i) {
    EXPECT_THAT(cluster.server(i).Output(), HasSubstr("listening on"));
    EXPECT_THAT(cluster.server(i).Output(), Not(HasSubstr("joined"))) << "the reader has ended";
  }
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], 4 * 2000) << summary.dump(2);
  EXPECT_GT(summary["last_checkpoint"], 0) << summary.dump(2);
}

// ---------------------------------------------------------------------------------------------- lost servers

constexpr char kImpatient[] = "faults { connect_timeout_seconds: 3 }";

TEST(LostServerTest, JobFailsNamingTheServerAndTheRemedy) {
  for (const char* preset : {"sync", "downpour"}) {
    TestCluster cluster({Job(preset, kImpatient), /*servers=*/2, TestDirectory() + "/" + preset});
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitTrained(4000));
    cluster.Kill(cluster.server(1));
    ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
    EXPECT_THAT(cluster.server(0).Output(), HasSubstr("server 1 at 127.0.0.1:"));
    EXPECT_THAT(cluster.server(0).Output(), HasSubstr("--resume"));
    const nlohmann::json summary = cluster.Summary();
    EXPECT_EQ(summary["phase"], "FAILED");
    EXPECT_THAT(std::string(summary["reason"]), HasSubstr("server 1"));
    for (int i = 0; i < 2; ++i) {
      const std::optional<ProcessEnd> end = cluster.worker(i).WaitFor(kPatience);
      ASSERT_TRUE(end.has_value()) << "worker " << i << " hangs\n" << cluster.LastWords();
      EXPECT_EQ(end->signal, 0) << cluster.LastWords();
      EXPECT_EQ(end->exit_code, 1) << cluster.LastWords();
    }
  }
}

TEST(LostServerTest, EveryoneSaysSoAndEndsWhenTheMasterIsLost) {
  for (const char* preset : {"sync", "downpour"}) {
    TestCluster cluster({Job(preset, kImpatient), /*servers=*/2, TestDirectory() + "/" + preset});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    ASSERT_TRUE(cluster.AwaitTrained(4000));
    const std::string master = cluster.master();
    cluster.Kill(cluster.server(0));
    ASSERT_TRUE(cluster.AwaitExit(cluster.server(1), 1));
    EXPECT_THAT(cluster.server(1).Output(), HasSubstr("gave up after 3 s: master at " + master));
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(cluster.AwaitExit(cluster.worker(i), 1));
      EXPECT_THAT(cluster.worker(i).Output(), HasSubstr(master));
    }
  }
}

}  // namespace
}  // namespace catchment
