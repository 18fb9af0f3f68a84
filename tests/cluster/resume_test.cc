// Jobs that end before their budget is spent, by request or by force, and go on from their checkpoint.
#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/checkpoint.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kEpochs = 30;
constexpr uint64_t kEndless = 1000000;  // such a job is ended by its test
constexpr uint64_t kSamples = kEpochs * 2000;
constexpr uint64_t kEveryUpdates = 50;

std::string JobThatKeeps(const std::string& preset, const std::string& checkpoint, uint64_t epochs) {
  return SmallJob(preset, absl::StrCat("deterministic: true workers: 2 batch_size: 32 epochs: ", epochs,
                                       " checkpoint { ", checkpoint, " } ", kUnhurried));
}

std::string Job(const std::string& preset, uint64_t epochs = kEpochs) {
  return JobThatKeeps(preset, absl::StrCat("every_updates: ", kEveryUpdates), epochs);
}

// Number of the checkpoint that a life of the job went on from.
uint64_t ResumedFrom(TestCluster* cluster) {
  const std::string said = cluster->server(0).Output();
  const std::string mark = "resuming from checkpoint ";
  const size_t at = said.find(mark);
  return at == std::string::npos ? 0 : std::stoull(said.substr(at + mark.size()));
}

// Trains until there is a checkpoint, then kills every process. False if there is a checkpoint of the whole
// budget by then: such a job would be done before a worker or an evaluator has come.
bool TrainAndKillAll(const TestCluster::Options& options) {
  TestCluster cluster(options);
  EXPECT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  const auto saved = cluster.AwaitStatus(
      "a checkpoint", [](const v1::JobStatus& status) { return status.last_checkpoint() > 0; });
  cluster.KillAll();
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(cluster.checkpoint_dir());
  return saved && found.ok() && found->manifest.master().samples() < kSamples;
}

// Leaves a job that was killed half-way, also where this process has to wait for a processor while the job
// trains.
void LeaveKilledJob(const std::string& job) {
  TestCluster::Options options{job, /*servers=*/2};
  options.resume = AutoSwitch::kAuto;  // begins, since there is no checkpoint
  for (int attempt = 0; attempt < 10; ++attempt) {
    if (TrainAndKillAll(options)) return;
    std::filesystem::remove_all(options.directory);
  }
  FAIL() << "each time the job was done before it could be killed";
}

class ResumeTest : public testing::TestWithParam<std::string> {};

TEST_P(ResumeTest, KilledJobGoesOnWithOtherServersAndWorkers) {
  ASSERT_NO_FATAL_FAILURE(LeaveKilledJob(Job(GetParam())));
  // It waits for all three workers, so that none of them comes when it is over. The third one sleeps, too:
  // alone at full speed it would train the whole budget, and two workers of elastic averaging that have
  // hardly trained would then pull the center back.
  const std::string job = absl::StrReplaceAll(
      Job(GetParam()),
      {{"workers: 2", "workers: 3"}, {"faults {", "faults { stragglers { worker: 2 slowdown_factor: 6 }"}});
  TestCluster::Options options{job, /*servers=*/3};
  options.resume = AutoSwitch::kAuto;
  TestCluster again(options);
  ASSERT_TRUE(again.Start(3));
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  EXPECT_GE(ResumedFrom(&again), kEveryUpdates);
  const nlohmann::json summary = again.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], kSamples) << summary.dump(2);
  // A guess is right for 0.1; runs with asynchronous updates differ.
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.7) << summary.dump(2);
}

INSTANTIATE_TEST_SUITE_P(All, ResumeTest,
                         testing::Values("sync", "downpour", "easgd", "easgd_sync", "eamsgd", "hybrid",
                                         "ssp"),
                         [](const auto& info) { return info.param; });

class DeterministicResumeTest : public testing::TestWithParam<int> {};

TEST_P(DeterministicResumeTest, EndsInTheSameBytesAsAnUndisturbedRun) {
  TestCluster undisturbed({Job("sync"), /*servers=*/2, TestDirectory() + "/undisturbed"});
  ASSERT_TRUE(undisturbed.StartServers());
  undisturbed.StartWorkers(2);

  ASSERT_NO_FATAL_FAILURE(LeaveKilledJob(Job("sync")));
  TestCluster::Options options{Job("sync"), GetParam()};
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());
  EXPECT_GE(ResumedFrom(&again), kEveryUpdates);
  EXPECT_TRUE(again.ModelBytes() == undisturbed.ModelBytes())
      << "the largest difference of a weight is "
      << LargestDifference(again.Tensors(), undisturbed.Tensors());
}

// Every checkpoint by time is of one version on all servers, too.
TEST(ResumeBySecondsTest, EndsInTheSameBytesAsAnUndisturbedRun) {
  const std::string job = JobThatKeeps("sync", "every_seconds: 0.05", kEpochs);
  TestCluster undisturbed({job, /*servers=*/2, TestDirectory() + "/undisturbed"});
  ASSERT_TRUE(undisturbed.StartServers());
  undisturbed.StartWorkers(2);

  ASSERT_NO_FATAL_FAILURE(LeaveKilledJob(job));
  TestCluster::Options options{job, /*servers=*/3};
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());
  EXPECT_GE(ResumedFrom(&again), 1u);
  EXPECT_TRUE(again.ModelBytes() == undisturbed.ModelBytes())
      << "the largest difference of a weight is "
      << LargestDifference(again.Tensors(), undisturbed.Tensors());
}

INSTANTIATE_TEST_SUITE_P(Servers, DeterministicResumeTest, testing::Values(1, 2, 3));

TEST_P(ResumeTest, MasterThatIsToldToEndSavesWhatThereIs) {
  TestCluster::Options options{Job(GetParam(), kEndless), /*servers=*/2};
  TestCluster cluster(options);
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitTrained(4000));
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json stopped = cluster.Summary();
  EXPECT_EQ(stopped["phase"], "STOPPED");
  EXPECT_THAT(std::string(stopped["reason"]), HasSubstr("is shutting down"));
  const uint64_t samples = stopped["samples"];
  EXPECT_GE(samples, 4000u);

  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  EXPECT_EQ(ResumedFrom(&again), uint64_t{stopped["last_checkpoint"]});
  // Nothing is lost and nothing done twice: the count goes on where it was.
  ASSERT_TRUE(again.AwaitStatus("what the first life has trained",
                                [&](const v1::JobStatus& status) { return status.samples() == samples; }));
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitTrained(samples + 2000));
  again.server(0).Signal(SIGTERM);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
}

TEST(ResumeDoneTest, FinishedJobEndsAtOnceWithItsModel) {
  TestCluster::Options options{SmallJob("sync", "deterministic: true epochs: 1"), /*servers=*/2};
  std::string bytes;
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(1);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    bytes = cluster.ModelBytes();
    std::filesystem::remove(cluster.out_dir() + "/model.safetensors");
  }
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  EXPECT_EQ(again.Summary()["samples"], 2000);
  EXPECT_TRUE(again.ModelBytes() == bytes);
}

TEST(ResumeDoneTest, WhoComesAfterTheEndLearnsOfIt) {
  TestCluster::Options options{SmallJob("sync", "epochs: 1 workers: 2 faults { connect_timeout_seconds: 3 }"),
                               /*servers=*/2};
  options.resume = AutoSwitch::kAuto;
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  }
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitOutput(again.server(0), "the job is DONE: telling"));
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  for (int i = 0; i < 2; ++i) EXPECT_THAT(again.worker(i).Output(), HasSubstr("the job is DONE"));
  // Now there is no master, but its record.
  ASSERT_TRUE(again.RestartServer(1));
  ASSERT_TRUE(again.AwaitExit(again.server(1), 0));
  EXPECT_THAT(again.server(1).Output(), HasSubstr("the job is DONE"));
}

}  // namespace
}  // namespace catchment
