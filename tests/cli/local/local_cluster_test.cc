#include "cli/local/local_cluster.h"

#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::Not;

ClusterPlan Plan() {
  ClusterPlan plan;
  plan.daemons = {"/bin/S", "/bin/W"};
  plan.job = std::string("o/job.textproto");
  plan.out = std::string("o");
  plan.checkpoints = std::string("o/checkpoints");
  plan.servers = 3;
  plan.threads = 2;
  return plan;
}

TEST(ClusterCommandsTest, TheMasterTakesFreePortsAndWritesTheResult) {
  const Command command = ServerCommand(Plan(), 0, "");
  EXPECT_THAT(command.argv, ElementsAre("/bin/S", "--job=o/job.textproto", "--index=0",
                                        "--servers=127.0.0.1:0,127.0.0.1:0,127.0.0.1:0",
                                        "--checkpoint_dir=o/checkpoints", "--out=o", "--evaluators=1"));
  ClusterPlan alone = Plan();
  alone.evaluator = false;
  EXPECT_THAT(ServerCommand(alone, 0, "").argv, Not(Contains("--evaluators=1")));
  EXPECT_EQ(command.name, "server-0");
  EXPECT_EQ(command.log, "o/logs/server-0.log");
}

TEST(ClusterCommandsTest, OtherServersGetTheMastersAddress) {
  ClusterPlan plan = Plan();
  plan.resume = true;
  EXPECT_THAT(ServerCommand(plan, 2, "127.0.0.1:7").argv,
              ElementsAre("/bin/S", "--job=o/job.textproto", "--index=2",
                          "--servers=127.0.0.1:7,127.0.0.1:0,127.0.0.1:0", "--checkpoint_dir=o/checkpoints",
                          "--resume"));
}

TEST(ClusterCommandsTest, AServerThatIsStartedAgainKeepsItsAddress) {
  EXPECT_THAT(ServerCommand(Plan(), 1, "127.0.0.1:7", "127.0.0.1:8").argv,
              Contains("--servers=127.0.0.1:7,127.0.0.1:8,127.0.0.1:0"));
  EXPECT_THAT(ServerCommand(Plan(), 0, "127.0.0.1:7", "127.0.0.1:7").argv,
              Contains("--servers=127.0.0.1:7,127.0.0.1:0,127.0.0.1:0"));
}

TEST(ClusterCommandsTest, ServersListenInTheDirectoryForSockets) {
  ClusterPlan plan = Plan();
  plan.sockets = "/tmp/s";
  EXPECT_THAT(ServerCommand(plan, 1, "unix:/tmp/s/server-0").argv,
              Contains("--servers=unix:/tmp/s/server-0,unix:/tmp/s/server-1,unix:/tmp/s/server-2"));
}

TEST(CreateSocketDirectory, IsOfThisUserAloneAndGoesWithItsContent) {
  std::string path;
  {
    const absl::StatusOr<TemporaryDirectory> directory = CreateSocketDirectory(std::getenv("TEST_TMPDIR"));
    ASSERT_TRUE(directory.ok()) << directory.status();
    path = directory->path();
    struct stat found = {};
    ASSERT_EQ(stat(path.c_str(), &found), 0);
    EXPECT_EQ(found.st_mode & 0777, 0700u);
    std::ofstream(path + "/server-0") << "x";
  }
  EXPECT_NE(access(path.c_str(), F_OK), 0);
}

TEST(ClusterCommandsTest, WorkersNeedTheMasterAlone) {
  EXPECT_THAT(WorkerCommand(Plan(), 1, "127.0.0.1:7").argv,
              ElementsAre("/bin/W", "--master=127.0.0.1:7", "--threads=2", "--local_index=1"));
}

TEST(ClusterCommandsTest, TheEvaluatorStandsBack) {
  const Command command = EvaluatorCommand(Plan(), "127.0.0.1:7");
  EXPECT_THAT(command.argv, ElementsAre("/bin/W", "--master=127.0.0.1:7", "--role=evaluator", "--threads=1"));
  EXPECT_EQ(command.nice, 5);
}

TEST(ClusterCommandsTest, DeviceReachesTheWorkers) {
  ClusterPlan plan = Plan();
  plan.device = "cuda";
  EXPECT_THAT(WorkerCommand(plan, 0, "m").argv, Contains("--device=cuda"));
}

TEST(ClusterCommandsTest, TheStageReachesAllThatReadData) {
  ClusterPlan plan = Plan();
  plan.stage = "/scratch";
  EXPECT_THAT(WorkerCommand(plan, 0, "m").argv, Contains("--stage=/scratch"));
  EXPECT_THAT(EvaluatorCommand(plan, "m").argv, Contains("--stage=/scratch"));
}

TEST(ListeningAddressTest, IsTakenFromAWholeLineOfThatServer) {
  EXPECT_EQ(ListeningAddress("x\ncatchment_server 0: listening on 127.0.0.1:4711\ny", 0), "127.0.0.1:4711");
  EXPECT_EQ(ListeningAddress("catchment_server 0: listening on 127.0.0.1:47", 0), "") << "not all of it yet";
  EXPECT_EQ(ListeningAddress("catchment_server 1: listening on 127.0.0.1:4711\n", 0), "");
  EXPECT_EQ(ListeningAddress("", 0), "");
}

TEST(DepartureTest, SaysWhichWhyAndItsLastWords) {
  Departure departure;
  departure.name = "worker-1";
  departure.pid = 47;
  departure.end = {0, 9};
  departure.log = "o/logs/worker-1.log";
  departure.tail = {"a", "b"};
  EXPECT_EQ(
      ToString(departure),
      "worker-1 (pid 47) died: killed by SIGKILL (9); the last lines of o/logs/worker-1.log:\n    a\n    b");
}

}  // namespace
}  // namespace catchment
