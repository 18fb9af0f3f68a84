// Jobs that end before their budget is spent, by request or by force, and go on from their checkpoint.
#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr int kEpochs = 60;
// Such a job is ended by its test.
constexpr int kEndless = 1000000;
constexpr uint64_t kSamples = kEpochs * 2000;

std::string Job(const std::string& preset, int epochs = kEpochs, const std::string& more = "") {
  return SmallJob(preset, absl::StrCat("deterministic: true workers: 2 batch_size: 32 epochs: ", epochs,
                                       " checkpoint { every_updates: 100 } ", more));
}

bool HasCheckpoint(const v1::JobStatus& status) { return status.last_checkpoint() >= 200; }

// Number of the checkpoint that a life of the job went on from.
uint64_t ResumedFrom(TestCluster* cluster) {
  const std::string said = cluster->server(0).Output();
  const std::string mark = "going on from checkpoint ";
  const size_t at = said.find(mark);
  return at == std::string::npos ? 0 : std::stoull(said.substr(at + mark.size()));
}

// Trains until there are checkpoints, then kills every process.
void TrainAndKillAll(const TestCluster::Options& options, int workers) {
  TestCluster cluster(options);
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(workers);
  ASSERT_TRUE(cluster.AwaitStatus("checkpoints", HasCheckpoint));
  cluster.KillAll();
  ASSERT_FALSE(std::filesystem::exists(cluster.out_dir() + "/summary.json")) << "killed too late";
}

class ResumeTest : public testing::TestWithParam<std::string> {};

TEST_P(ResumeTest, KilledJobGoesOnWithOtherServersAndWorkers) {
  TestCluster::Options options{Job(GetParam()), /*servers=*/2};
  ASSERT_NO_FATAL_FAILURE(TrainAndKillAll(options, 2));
  options.resume = true;
  options.servers = 3;
  TestCluster again(options);
  ASSERT_TRUE(again.Start(3));
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  EXPECT_GE(ResumedFrom(&again), 200u);
  const nlohmann::json summary = again.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], kSamples) << summary.dump(2);
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.85) << summary.dump(2);
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

  TestCluster::Options options{Job("sync"), /*servers=*/2};
  ASSERT_NO_FATAL_FAILURE(TrainAndKillAll(options, 2));
  options.resume = true;
  options.servers = GetParam();
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  again.StartWorkers(2);
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());
  EXPECT_GE(ResumedFrom(&again), 200u);
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
  EXPECT_THAT(std::string(stopped["reason"]), HasSubstr("told to end"));
  const uint64_t samples = stopped["samples"];
  EXPECT_GE(samples, 4000u);

  options.resume = true;
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
  options.resume = true;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  EXPECT_EQ(again.Summary()["samples"], 2000);
  EXPECT_TRUE(again.ModelBytes() == bytes);
}

}  // namespace
}  // namespace catchment
