// Real processes that are killed while a job trains, and started again with nothing but their own command
// line: the job goes back to its last checkpoint, the workers stay, and training goes on.
// tests/server/control/control_loop_test.cc has losses at all other moments in virtual time, accounts_test.cc
// a server's loss with each pair of a contribution and a consistency.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <sstream>
#include <string>
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

// A person who starts a job must not get the weights of another one, or of one that was stopped.
void ExpectNeedsResume(const TestCluster& cluster) {
  const Finished refused = RunToEnd(cluster.ServerCommand(0, ""));
  EXPECT_EQ(refused.end.exit_code, 1);
  EXPECT_THAT(refused.output, HasSubstr("resume from it with --resume, or choose another directory"));
}

TEST(RecoveryTest, AllServersThatWereKilledComeBack) {
  TestCluster cluster({Job("streaming_diloco", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {0, 1}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "the master was lost at version "));
  EXPECT_THAT(cluster.server(0).Output(), HasSubstr("; went back to checkpoint "));
  ASSERT_NO_FATAL_FAILURE(TrainOnAndStop(&cluster, 1));
  ExpectNeedsResume(cluster);
  std::ofstream(cluster.job_file()) << Job("downpour", kEndless);
  ExpectNeedsResume(cluster);
}

// Server 1 has come back, and the job goes back, when the master is killed.
TEST(RecoveryTest, MasterIsKilledWhileTheJobGoesBack) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(AwaitCheckpoint(&cluster, 1));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {1}));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "server 1 was lost: the job goes back"));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {0}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 2000));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

// The workers are done and have left, and the last checkpoint cannot be written, when the master is killed.
TEST(RecoveryTest, MasterIsKilledBeforeTheLastCheckpointIsWritten) {
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
  Kill(&cluster, {0});
  std::filesystem::remove(directory);
  std::filesystem::rename(aside, directory);
  ASSERT_TRUE(cluster.RestartServer(0));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], 1) << summary.dump(2);
  EXPECT_EQ(summary["samples"], kShort * 2000) << summary.dump(2);
}

constexpr uint64_t kEpochs = 100;

// Trains to the end, with server 1 killed once there is a checkpoint. Returns false if the job was done
// before.
bool TrainAndKill(TestCluster* cluster) {
  EXPECT_TRUE(cluster->StartServers());
  cluster->StartWorkers(2);
  const bool saved = static_cast<bool>(AwaitCheckpoint(cluster, 1));
  Kill(cluster, {1});
  if (!saved || std::filesystem::exists(cluster->out_dir() + "/summary.json")) return false;
  EXPECT_TRUE(cluster->RestartServer(1));
  EXPECT_TRUE(cluster->AwaitOrderlyEnd());
  return true;
}

TEST(RecoveryTest, EndsInTheSameBytesAsAnUndisturbedRun) {
  TestCluster undisturbed(
      {Job("sync", kEpochs) + kUnhurried, /*servers=*/2, TestDirectory() + "/undisturbed"});
  ASSERT_TRUE(undisturbed.StartServers());
  undisturbed.StartWorkers(2);
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());

  const TestCluster::Options options{Job("sync", kEpochs) + kUnhurried, /*servers=*/2};
  auto cluster = std::make_unique<TestCluster>(options);
  for (int attempt = 0; !TrainAndKill(cluster.get()); ++attempt) {
    ASSERT_LT(attempt, 10) << "each time the job was done before the server was killed";
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

// `catchment train` starts each of its processes again, with standbys so that no update is computed again.
TEST(TrainRecoveryTest, KillingAProcessDoesNotEndTheJob) {
  const std::string out = TestDirectory() + "/out", job = TestDirectory() + "/job.textproto";
  std::ofstream(job) << Job("easgd", kEndless);
  absl::StatusOr<Process> train = Process::Start({"train",
                                                  {Runfile("cli/catchment"), "train", job, "--out=" + out,
                                                   "--servers=2", "--workers=2", "--set=faults.standby=1"},
                                                  TestDirectory() + "/train.log"});
  ASSERT_TRUE(train.ok()) << train.status();
  const auto await_checkpoint_after = [&](uint64_t number) {
    ASSERT_TRUE(Await([&] {
      const absl::StatusOr<FoundCheckpoint> latest = FindLatest(out + "/checkpoints");
      return train->Poll().has_value() || (latest.ok() && latest->manifest.number() > number);
    }));
    ASSERT_FALSE(train->Poll().has_value()) << train->Output() << ReadAll(out + "/logs/server-0.log");
  };
  ASSERT_NO_FATAL_FAILURE(await_checkpoint_after(0));
  for (const char* victim : {"--index=0", "--index=1", "--local_index=1", "--role=evaluator"}) {
    SCOPED_TRACE(victim);
    const pid_t pid = FindChild(train->pid(), victim);
    ASSERT_GT(pid, 0);
    const uint64_t number = FindLatest(out + "/checkpoints")->manifest.number();
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    if (absl::StartsWith(victim, "--index")) {
      pid_t again = 0;
      ASSERT_TRUE(Await([&] { return (again = FindChild(train->pid(), victim)) > 0 && again != pid; }));
    }
    ASSERT_NO_FATAL_FAILURE(await_checkpoint_after(number + 1));
  }
  train->Signal(SIGTERM);
  const std::optional<ProcessEnd> end = train->WaitFor(kPatience);
  ASSERT_TRUE(end.has_value());
  EXPECT_EQ(end->exit_code, 128 + SIGTERM) << train->Output() << ReadAll(out + "/logs/server-0.log");
  const nlohmann::json summary = nlohmann::json::parse(ReadAll(out + "/summary.json"), nullptr, false);
  ASSERT_TRUE(summary.is_object());
  EXPECT_EQ(summary["phase"], "STOPPED") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], 2) << summary.dump(2);
  EXPECT_EQ(summary["updates_computed_again"], 0) << summary.dump(2);
}

// A supervisor that starts daemons again after an exit code other than 0 has nothing to do after the end.
TEST(RecoveryTest, ProcessesThatMissedTheEndEndInOrder) {
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
