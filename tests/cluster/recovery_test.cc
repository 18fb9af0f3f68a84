// Processes that are killed while a job trains, and started again with nothing but their own command line:
// the job goes back to its last checkpoint, the workers stay, and training goes on.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kEndless = 1000000;  // such a job is ended by its test
constexpr uint64_t kEveryUpdates = 20;

std::string Job(const std::string& preset, uint64_t epochs, uint64_t every_updates = kEveryUpdates) {
  return SmallJob(preset, absl::StrCat("deterministic: true workers: 2 batch_size: 32 epochs: ", epochs,
                                       " checkpoint { every_updates: ", every_updates, " keep: 1000000 }"));
}

// Returns a condition for the number of recoveries after which the job trains.
std::function<bool(const v1::JobStatus&)> HasRecovered(uint64_t recoveries) {
  return [=](const v1::JobStatus& status) {
    return status.recoveries() >= recoveries && status.phase() == v1::JobStatus::TRAINING;
  };
}

void Kill(TestCluster* cluster, const std::vector<int>& servers) {
  for (int i : servers) cluster->server(i).Signal(SIGKILL);
  for (int i : servers) cluster->Kill(cluster->server(i));
}

void KillAndRestart(TestCluster* cluster, const std::vector<int>& servers) {
  Kill(cluster, servers);
  for (int i : servers) ASSERT_TRUE(cluster->RestartServer(i));
}

testing::AssertionResult AwaitCheckpoint(TestCluster* cluster, uint64_t number) {
  return cluster->AwaitStatus(absl::StrCat("checkpoint ", number), [number](const v1::JobStatus& status) {
    return status.last_checkpoint() >= number;
  });
}

// Lets an endless job train `samples` more, and stops it.
void TrainOnAndStop(TestCluster* cluster, uint64_t recoveries) {
  const absl::StatusOr<v1::JobStatus> status = cluster->Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster->AwaitTrained(status->samples() + 2000));
  cluster->server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster->AwaitOrderlyEnd());
  const nlohmann::json summary = cluster->Summary();
  EXPECT_EQ(summary["phase"], "STOPPED") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], recoveries) << summary.dump(2);
}

// ------------------------------------------------------------------------------------------------- families

class RecoveryTest : public testing::TestWithParam<std::string> {
 protected:
  RecoveryTest() : cluster_({Job(GetParam(), kEndless), /*servers=*/2}) {}
  void Start() {
    ASSERT_TRUE(cluster_.StartServers());
    cluster_.StartWorkers(2);
    ASSERT_TRUE(AwaitCheckpoint(&cluster_, 1));
  }

  TestCluster cluster_;
};

TEST_P(RecoveryTest, ServerThatWasKilledComesBack) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster_, {1}));
  ASSERT_TRUE(cluster_.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_TRUE(cluster_.AwaitOutput(cluster_.server(0), "server 1 was lost at version "));
  EXPECT_THAT(cluster_.server(0).Output(), HasSubstr("; went back to checkpoint "));
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster_, 1));
}

TEST_P(RecoveryTest, MasterThatWasKilledComesBack) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster_, {0}));
  ASSERT_TRUE(cluster_.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_TRUE(cluster_.AwaitOutput(cluster_.server(0), "the master was lost at version "));
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster_, 1));
}

TEST_P(RecoveryTest, AllServersThatWereKilledComeBack) {
  ASSERT_NO_FATAL_FAILURE(Start());
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster_, {0, 1}));
  ASSERT_TRUE(cluster_.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster_, 1));
}

INSTANTIATE_TEST_SUITE_P(Families, RecoveryTest,
                         testing::Values("sync", "downpour", "hybrid", "easgd", "easgd_sync", "local_sgd",
                                         "streaming_diloco"),
                         [](const auto& info) { return info.param; });

// --------------------------------------------------------------------------------------------------- moments

class RecoveryMomentTest : public testing::TestWithParam<int> {
 protected:
  int server() const { return GetParam(); }
};

TEST_P(RecoveryMomentTest, BeforeTheFirstCheckpointTheJobBeginsAnew) {
  TestCluster cluster({Job("downpour", kEndless, /*every_updates=*/0), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitTrained(1000));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {server()}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "; went back to the initial weights; "));
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster, 1));
  EXPECT_GT(cluster.Summary()["updates_computed_again"], 0);
}

TEST_P(RecoveryMomentTest, TwiceInARow) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  for (uint64_t times : {1, 2}) {
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {server()}));
    ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(times)));
  }
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster, 2));
}

// Server 1 has come back, and the job goes back, when this server is killed.
TEST_P(RecoveryMomentTest, WhileTheJobGoesBack) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {1}));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "server 1 was lost: the job goes back"));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {server()}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 2000));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

// The workers are done and have left, and the last checkpoint cannot be written, when this server is killed.
TEST_P(RecoveryMomentTest, BeforeTheLastCheckpointIsWritten) {
  constexpr uint64_t kShort = 5;
  TestCluster cluster({Job("sync", kShort, /*every_updates=*/0), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  const std::string directory = cluster.checkpoint_dir(), aside = directory + "-aside";
  std::filesystem::rename(directory, aside);
  std::ofstream(directory) << "a file in the place of the directory";
  cluster.StartWorkers(2);
  for (int i : {0, 1}) {
    ASSERT_TRUE(cluster.AwaitOutput(cluster.worker(i), "stays until the last checkpoint is written"));
  }
  Kill(&cluster, {server()});
  std::filesystem::remove(directory);
  std::filesystem::rename(aside, directory);
  ASSERT_TRUE(cluster.RestartServer(server()));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], 1) << summary.dump(2);
  EXPECT_EQ(summary["samples"], kShort * 2000) << summary.dump(2);
}

INSTANTIATE_TEST_SUITE_P(Servers, RecoveryMomentTest, testing::Values(0, 1));

// --------------------------------------------------------------------------------------------- the same bits

constexpr uint64_t kEpochs = 100;

// Trains to the end, with servers that are killed once there is a checkpoint. Returns false if the job was
// done before.
bool TrainAndKill(TestCluster* cluster, const std::vector<int>& servers) {
  EXPECT_TRUE(cluster->StartServers());
  cluster->StartWorkers(2);
  const bool saved = static_cast<bool>(AwaitCheckpoint(cluster, 1));
  Kill(cluster, servers);
  if (!saved || std::filesystem::exists(cluster->out_dir() + "/summary.json")) return false;
  for (int i : servers) EXPECT_TRUE(cluster->RestartServer(i));
  EXPECT_TRUE(cluster->AwaitOrderlyEnd());
  return true;
}

class DeterministicRecoveryTest : public testing::TestWithParam<std::vector<int>> {};

TEST_P(DeterministicRecoveryTest, EndsInTheSameBytesAsAnUndisturbedRun) {
  TestCluster undisturbed({Job("sync", kEpochs), /*servers=*/2, TestDirectory() + "/undisturbed"});
  ASSERT_TRUE(undisturbed.StartServers());
  undisturbed.StartWorkers(2);
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());

  const TestCluster::Options options{Job("sync", kEpochs), /*servers=*/2};
  auto cluster = std::make_unique<TestCluster>(options);
  for (int attempt = 0; !TrainAndKill(cluster.get(), GetParam()); ++attempt) {
    ASSERT_LT(attempt, 10) << "each time the job was done before the servers were killed";
    cluster.reset();
    std::filesystem::remove_all(options.directory);
    cluster = std::make_unique<TestCluster>(options);
  }
  const nlohmann::json summary = cluster->Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], 1) << summary.dump(2);
  EXPECT_TRUE(cluster->ModelBytes() == undisturbed.ModelBytes())
      << "the largest difference of a weight is "
      << LargestDifference(cluster->Tensors(), undisturbed.Tensors());
}

INSTANTIATE_TEST_SUITE_P(Servers, DeterministicRecoveryTest,
                         testing::Values(std::vector<int>{1}, std::vector<int>{0}, std::vector<int>{0, 1}));

// ------------------------------------------------------------------------------------------- what is refused

// A person who starts a job must not get the weights of another one.
TEST(RecoveryRefusalTest, MasterOfAnotherJobDoesNotContinueThisOne) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  cluster.KillAll();
  std::ofstream(cluster.job_file()) << Job("downpour", kEndless);
  const Finished refused = RunToEnd(cluster.ServerCommand(0, ""));
  EXPECT_EQ(refused.end.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("resume from it with --resume, or choose another directory"));
}

TEST(RecoveryRefusalTest, JobThatWasStoppedIsNotContinuedWithoutResume) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const Finished refused = RunToEnd(cluster.ServerCommand(0, ""));
  EXPECT_EQ(refused.end.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("resume from it with --resume, or choose another directory"));
}

// ------------------------------------------------------------------------------------------- catchment train

std::string ReadAll(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// Returns the child of `parent` whose command line contains `argument`; 0: there is none.
pid_t FindChild(pid_t parent, const std::string& argument) {
  std::istringstream children(ReadAll(absl::StrCat("/proc/", parent, "/task/", parent, "/children")));
  for (pid_t child; children >> child;) {
    if (absl::StrContains(ReadAll(absl::StrCat("/proc/", child, "/cmdline")), argument)) return child;
  }
  return 0;
}

struct Victim {
  std::string name;
  std::string argument;  // in its command line alone
  bool is_server = false;
};

class TrainRecoveryTest : public testing::TestWithParam<std::tuple<std::string, Victim, int>> {
 protected:
  static constexpr int kEpochs = 60;

  // Trains, and kills the victim once there is a checkpoint. Returns the number of recoveries.
  uint64_t TrainAndKill() {
    const auto& [preset, victim, standby] = GetParam();
    const std::string out = TestDirectory() + "/out";
    const std::string job = TestDirectory() + "/job.textproto";
    std::ofstream(job) << Job(preset, kEpochs);
    absl::StatusOr<Process> train =
        Process::Start({"train",
                        {Runfile("cli/catchment"), "train", job, "--out=" + out, "--servers=2", "--workers=2",
                         "--overwrite", absl::StrCat("--set=faults.standby=", standby)},
                        TestDirectory() + "/train.log"});
    EXPECT_TRUE(train.ok()) << train.status();
    if (!train.ok()) return 0;
    Await([&] { return train->Poll().has_value() || FindLatest(out + "/checkpoints").ok(); });
    const pid_t pid = FindChild(train->pid(), victim.argument);
    if (pid > 0) kill(pid, SIGKILL);
    const std::optional<ProcessEnd> end = train->WaitFor(kPatience);
    EXPECT_TRUE(end.has_value() && end->in_order()) << train->Output() << ReadAll(out + "/logs/server-0.log");
    const nlohmann::json summary = nlohmann::json::parse(ReadAll(out + "/summary.json"), nullptr, false);
    EXPECT_TRUE(summary.is_object());
    if (!summary.is_object()) return 0;
    EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
    EXPECT_EQ(summary["samples"], kEpochs * 2000) << summary.dump(2);
    EXPECT_TRUE(summary.contains("updates_computed_again"));
    EXPECT_TRUE(standby == 0 || summary["updates_computed_again"] == 0) << summary.dump(2);
    return summary["recoveries"];
  }
};

// The job may be done before the process is killed.
TEST_P(TrainRecoveryTest, KillingAProcessDoesNotEndTheJob) {
  const bool is_server = std::get<1>(GetParam()).is_server;
  for (int attempt = 0; attempt < 5; ++attempt) {
    const uint64_t recoveries = TrainAndKill();
    if (HasFailure()) return;
    if (is_server && recoveries == 0) continue;
    EXPECT_EQ(recoveries, is_server ? 1 : 0);
    return;
  }
  FAIL() << "each time the job was done before the process was killed";
}

std::string CaseName(const testing::TestParamInfo<TrainRecoveryTest::ParamType>& info) {
  const auto& [preset, victim, standby] = info.param;
  return preset + "_" + victim.name + (standby > 0 ? "_with_standby" : "");
}

INSTANTIATE_TEST_SUITE_P(Families, TrainRecoveryTest,
                         testing::Combine(testing::Values("sync", "downpour", "easgd", "local_sgd"),
                                          testing::Values(Victim{"master", "--index=0", true},
                                                          Victim{"server", "--index=1", true},
                                                          Victim{"worker", "--local_index=1"},
                                                          Victim{"evaluator", "--role=evaluator"}),
                                          testing::Values(0, 1)),
                         CaseName);

// ------------------------------------------------------------------------------------------------- outcomes

// The server is lost again before it has registered for the run that its first loss has begun.
TEST(RecoveryOutcomeTest, JobFailsIfAServerStaysAway) {
  for (const int master_too : {0, 1}) {
    TestCluster cluster({absl::StrCat(Job("downpour", kEndless), " faults { connect_timeout_seconds: 4 }"),
                         /*servers=*/2, absl::StrCat(TestDirectory(), "/", master_too)});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
    if (master_too > 0) {
      Kill(&cluster, {1, 0});
      ASSERT_TRUE(cluster.RestartServer(0));
    } else {
      cluster.server(1).Signal(SIGSTOP);
      Kill(&cluster, {1});
      ASSERT_TRUE(cluster.RestartServer(1));
      ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "was lost: the job goes back to "));
      Kill(&cluster, {1});
    }
    ASSERT_TRUE(cluster.AwaitExit(cluster.server(0), 1));
    EXPECT_THAT(cluster.server(0).Output(), HasSubstr("server 1"));
    EXPECT_THAT(cluster.server(0).Output(), HasSubstr("start all servers again with --resume"));
  }
}

// A supervisor that starts daemons again after an exit code other than 0 has nothing to do after the end.
TEST(RecoveryOutcomeTest, ProcessesThatMissedTheEndEndInOrder) {
  TestCluster cluster({Job("downpour", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  // Server 1 and a worker do not answer while the job ends.
  cluster.server(1).Signal(SIGSTOP);
  const std::string record = cluster.checkpoint_dir() + "/run.textproto";
  Kill(&cluster, {0});
  // As a master leaves it that is lost in its last second.
  std::ifstream in(record);
  std::string text(std::istreambuf_iterator<char>(in), {});
  std::ofstream(record) << text << "ended: true phase: \"DONE\"\n";
  cluster.server(1).Signal(SIGCONT);
  ASSERT_TRUE(cluster.RestartServer(0));
  for (int i : {0, 1}) {
    ASSERT_TRUE(cluster.AwaitExit(cluster.server(i), 0));
    ASSERT_TRUE(cluster.AwaitExit(cluster.worker(i), 0));
    EXPECT_THAT(cluster.server(i).Output(), HasSubstr("the job is DONE"));
    EXPECT_THAT(cluster.worker(i).Output(), HasSubstr("the job is DONE"));
  }
}

}  // namespace
}  // namespace catchment
