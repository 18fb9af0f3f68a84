// Server processes that are killed and started again while a job runs, and two masters that meet: nothing is
// trained with the weights of another process or of another job.
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <regex>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/job/job_text.h"
#include "common/job/validate.h"
#include "common/wire/protocol.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// Returns a job without checkpoints before its end. Jobs that a test disturbs are endless, and the test ends
// them.
std::string Job(const std::string& preset, int epochs) {
  return SmallJob(preset, absl::StrCat("workers: 2 epochs: ", epochs, " checkpoint { every_updates: 0 }"));
}
constexpr int kEndless = 1000000;

class RestartedServerTest : public testing::TestWithParam<std::string> {};

TEST_P(RestartedServerTest, DuringAJobWithoutCheckpointsEndsItAtOnceForThatReason) {
  TestCluster::Options options{Job(GetParam(), kEndless), /*servers=*/2};
  options.keeps_checkpoints = false;
  TestCluster cluster(options);
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1000)));
  cluster.Kill(cluster.server(1));
  ASSERT_TRUE(cluster.RestartServer(1));
  for (int i : {0, 1}) ASSERT_TRUE(cluster.AwaitExit(cluster.server(i), 1));
  for (int i : {0, 1}) ASSERT_TRUE(cluster.AwaitExit(cluster.worker(i), 1));
  const std::string reason = "server 1 at " + cluster.address(1) + " was restarted during the job";
  EXPECT_THAT(cluster.server(0).Output(), HasSubstr("the job has ended: FAILED, " + reason));
  EXPECT_THAT(cluster.server(1).Output(), HasSubstr(reason));
  EXPECT_THAT(cluster.server(0).Output(),
              HasSubstr("no checkpoint is complete yet: start all servers again"));
}

TEST_P(RestartedServerTest, BeforeTheJobHasBegunTrainsAsIfItWereTheFirst) {
  TestCluster cluster({Job(GetParam(), 2), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  ASSERT_TRUE(cluster.AwaitStatus(
      "the servers", [](const v1::JobStatus& status) { return !status.servers(1).address().empty(); }));
  cluster.Kill(cluster.server(1));
  ASSERT_TRUE(cluster.RestartServer(1));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "was restarted before training began"));
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["phase"], "DONE");
  EXPECT_EQ(cluster.Summary()["samples"], 2 * 2000);
}

// Returns the incarnations that a worker has had, in order.
std::vector<uint64_t> IncarnationsOf(const Process& worker) {
  const std::string output = worker.Output();
  const std::regex line("worker [0-9]+, incarnation ([0-9]+), of job");
  std::vector<uint64_t> incarnations;
  for (std::sregex_iterator at(output.begin(), output.end(), line), end; at != end; ++at) {
    incarnations.push_back(std::stoull((*at)[1]));
  }
  return incarnations;
}

// A restarted master begins a new run of the job: the servers of the previous run end, the workers join
// anew.
TEST_P(RestartedServerTest, MasterThatIsStartedAgainTrainsWithServersOfItsOwn) {
  TestCluster cluster({Job(GetParam(), kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1000)));
  cluster.Kill(cluster.server(0));
  std::ofstream(cluster.job_file()) << Job(GetParam(), 3);
  ASSERT_TRUE(cluster.RestartServer(0));
  ASSERT_TRUE(cluster.AwaitExit(cluster.server(1), 1));
  EXPECT_THAT(cluster.server(1).Output(),
              AllOf(HasSubstr("server 1 at " + cluster.address(1) + " belongs to run "),
                    HasSubstr("but this master started run "), HasSubstr("the server exits; restart it")));
  EXPECT_THAT(cluster.server(0).Output(), HasSubstr("the server exits; restart it"));
  ASSERT_TRUE(cluster.RestartServer(1));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_EQ(summary["samples"], 3 * 2000);
  EXPECT_EQ(summary["pushes_duplicate"], 0);
  EXPECT_EQ(summary["per_shard"][0]["pushes_applied"], summary["per_shard"][1]["pushes_applied"])
      << summary["per_shard"];
  std::set<uint64_t> incarnations;
  size_t count = 0;
  for (int i : {0, 1}) {
    const std::vector<uint64_t> of_worker = IncarnationsOf(cluster.worker(i));
    EXPECT_GE(of_worker.size(), 2u);
    count += of_worker.size();
    incarnations.insert(of_worker.begin(), of_worker.end());
  }
  EXPECT_EQ(incarnations.size(), count) << "no incarnation is given twice";
}

INSTANTIATE_TEST_SUITE_P(All, RestartedServerTest, testing::Values("sync", "downpour"),
                         [](const auto& info) { return info.param; });

// A server of `cluster` registers from an address that, seen from the master, is another server's.
void RegisterServer1(const TestCluster& cluster, const std::string& address) {
  const absl::StatusOr<v1::Job> job = LoadJob(cluster.job_file());
  ASSERT_TRUE(job.ok()) << job.status();
  v1::RegisterServerRequest request;
  request.set_index(1);
  request.set_num_servers(2);
  request.set_address(address);
  request.set_job_fingerprint(JobFingerprint(*FillDefaultsAndValidate(*job)));
  request.set_server_instance(1);
  request.set_protocol_version(kProtocolVersion);
  v1::RegisterServerReply reply;
  const auto stub = v1::MasterService::NewStub(Connect(cluster.master(), grpc::InsecureChannelCredentials()));
  const grpc::Status status = stub->RegisterServer(DeadlineContext(60).get(), request, &reply);
  ASSERT_TRUE(status.ok()) << status.error_message();
}

TEST(TwoJobsTest, ServerOfOneJobRefusesTheMasterOfAnother) {
  TestCluster first({Job("downpour", kEndless), /*servers=*/2, TestDirectory() + "/first"});
  ASSERT_TRUE(first.StartServers());
  first.StartWorkers(2);
  ASSERT_TRUE(first.AwaitTrained(1000));
  const std::string job = absl::StrReplaceAll(Job("downpour", kEndless), {{"\"small\"", "\"second\""}});
  TestCluster second({job, /*servers=*/2, TestDirectory() + "/second"});
  ASSERT_TRUE(second.StartMaster());
  ASSERT_NO_FATAL_FAILURE(RegisterServer1(second, first.address(1)));
  ASSERT_TRUE(second.AwaitExit(second.server(0), 1));
  EXPECT_THAT(second.server(0).Output(),
              AllOf(HasSubstr("server 1 at " + first.address(1) + " refuses this job: "),
                    HasSubstr("of job 'small' (master at " + first.master() + "), and refuses run "),
                    HasSubstr("of job 'second' (master at " + second.master() +
                              "): give each job servers of its own")));
  const absl::StatusOr<v1::JobStatus> status = first.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(first.AwaitTrained(status->samples() + 1000));
  first.server(0).Signal(SIGTERM);
  ASSERT_TRUE(first.AwaitOrderlyEnd());
}

std::string ThisHost() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return name;
}

TEST(TwoMastersTest, DirectoriesBelongToOneMasterUntilItHasEnded) {
  TestCluster cluster({Job("downpour", kEndless), /*servers=*/1});
  ASSERT_TRUE(cluster.StartServers());
  const std::string owner = absl::StrCat(" is in use by another master on host ", ThisHost(), " with pid ",
                                         cluster.server(0).pid());
  const Finished same = RunToEnd(cluster.ServerCommand(0, ""));
  EXPECT_EQ(same.end.exit_code, 1);
  EXPECT_THAT(same.output, HasSubstr(cluster.out_dir() + owner));

  std::vector<std::string> argv = cluster.ServerCommand(0, "");
  argv.push_back("--out=" + TestDirectory() + "/other");
  const Finished same_checkpoints = RunToEnd(argv);
  EXPECT_EQ(same_checkpoints.end.exit_code, 1);
  EXPECT_THAT(same_checkpoints.output, HasSubstr(cluster.checkpoint_dir() + owner));

  cluster.Kill(cluster.server(0));
  ASSERT_TRUE(cluster.RestartServer(0));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

}  // namespace
}  // namespace catchment
