// Jobs whose checkpoints have the states of their workers (Checkpointing.worker_state): after a resume they
// go on as if nothing had happened, which jobs without it cannot where workers keep more than the center's
// weights.
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr uint64_t kEpochs = 30;
constexpr uint64_t kEndless = 1000000;  // such a job is ended by its test

struct Case {
  std::string name, preset, more;
  int servers_after = 3;  // that the job is resumed with, after 2
  int every_updates = 50;
};

std::string Job(const Case& c, uint64_t epochs = kEpochs) {
  return SmallJob(c.preset, absl::StrCat("deterministic: true workers: 2 batch_size: 32 epochs: ", epochs,
                                         " checkpoint { every_updates: ", c.every_updates,
                                         " worker_state: true } ", kUnhurried, c.more));
}

class WorkerStateTest : public testing::TestWithParam<Case> {
 protected:
  // A run of the job from its beginning to its end.
  std::string Undisturbed() {
    TestCluster cluster({Job(GetParam()), /*servers=*/2, TestDirectory() + "/undisturbed"});
    EXPECT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    EXPECT_TRUE(cluster.AwaitOrderlyEnd());
    return cluster.ModelBytes();
  }

  // Trains until there is a checkpoint, and then ends all with `end`. Returns false when the job was done
  // before, which a busy machine can cause.
  bool Interrupt(const TestCluster::Options& options, const std::function<void(TestCluster*)>& end) {
    TestCluster cluster(options);
    EXPECT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    const auto saved = cluster.AwaitStatus(
        "a checkpoint", [](const v1::JobStatus& status) { return status.last_checkpoint() > 0; });
    end(&cluster);
    const std::string summary = cluster.out_dir() + "/summary.json";
    return saved && (!std::filesystem::exists(summary) || cluster.Summary()["phase"] == "STOPPED");
  }
  void LeaveInterrupted(const std::function<void(TestCluster*)>& end) {
    const TestCluster::Options options{Job(GetParam()), /*servers=*/2};
    for (int attempt = 0; attempt < 10; ++attempt) {
      if (Interrupt(options, end)) return;
      std::filesystem::remove_all(options.directory);
    }
    FAIL() << "each time the job was done before it could be interrupted";
  }

  std::string Resume() {
    TestCluster::Options options{Job(GetParam()), GetParam().servers_after};
    options.resume = AutoSwitch::kOn;
    TestCluster again(options);
    EXPECT_TRUE(again.StartServers());
    again.StartWorkers(2);
    EXPECT_TRUE(again.AwaitOrderlyEnd());
    for (int w = 0; w < 2; ++w) {
      EXPECT_THAT(again.worker(w).Output(), HasSubstr("continues with its state from the checkpoint"));
    }
    EXPECT_EQ(again.Summary()["samples"], kEpochs * 2000);
    return again.ModelBytes();
  }
};

TEST_P(WorkerStateTest, AKilledJobEndsInTheSameBytes) {
  ASSERT_NO_FATAL_FAILURE(LeaveInterrupted([](TestCluster* cluster) { cluster->KillAll(); }));
  EXPECT_TRUE(Resume() == Undisturbed());
}

TEST_P(WorkerStateTest, AStoppedJobEndsInTheSameBytes) {
  ASSERT_NO_FATAL_FAILURE(LeaveInterrupted([](TestCluster* cluster) {
    cluster->server(0).Signal(SIGTERM);
    EXPECT_TRUE(cluster->AwaitOrderlyEnd());
  }));
  EXPECT_TRUE(Resume() == Undisturbed());
}

INSTANTIATE_TEST_SUITE_P(
    All, WorkerStateTest,
    testing::Values(Case{"easgd_sync", "easgd_sync", ""},
                    // It makes only 58 updates.
                    Case{.name = "diloco", .preset = "diloco", .every_updates = 5},
                    // Answers are in flight when it is interrupted.
                    Case{.name = "streaming_diloco", .preset = "streaming_diloco", .every_updates = 5},
                    // The largest values of a block depend on the blocks, and so on the number of servers.
                    Case{"top_k", "sync", "compression { push: TOP_K top_k_fraction: 0.1 }", 2},
                    // So do groups.
                    Case{"e2m1", "sync", "compression { push: E2M1 residual_decay: 0.95 }", 2}),
    [](const auto& info) { return info.param.name; });

// The order of updates is another in each run, but what workers keep is there.
TEST(AsynchronousWorkerStateTest, AStoppedJobGoesOnWithIt) {
  const Case easgd = {"easgd", "easgd", ""};
  TestCluster::Options options{Job(easgd, kEndless), /*servers=*/2};
  uint64_t epochs = 0;
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitStatus("training", AllHaveTrained(2, 1000)));
    cluster.server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    ASSERT_EQ(cluster.Summary()["phase"], "STOPPED");
    epochs = std::max(kEpochs, cluster.Summary()["samples"].get<uint64_t>() / 2000 + 2);
  }
  options.job = Job(easgd, epochs);
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.Start(2));
  ASSERT_TRUE(again.AwaitOrderlyEnd());
  for (int w = 0; w < 2; ++w) {
    EXPECT_THAT(again.worker(w).Output(), HasSubstr("continues with its state from the checkpoint"));
  }
  const nlohmann::json summary = again.Summary();
  EXPECT_EQ(summary["samples"], epochs * 2000);
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.85) << summary.dump(2);
}

// A file of a state that is lost is an error that names it, and not a silent return to the center's weights.
TEST(LostWorkerStateTest, IsNamed) {
  const Case easgd = {"easgd_sync", "easgd_sync", ""};
  TestCluster::Options options{Job(easgd, kEndless), /*servers=*/1};
  {
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitStatus("training", AllHaveTrained(2, 1000)));
    cluster.server(0).Signal(SIGTERM);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  }
  int removed = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(options.directory + "/out")) {
    if (entry.path().filename() == "worker-1.safetensors") removed += std::filesystem::remove(entry.path());
  }
  ASSERT_GT(removed, 0);
  options.resume = AutoSwitch::kOn;
  TestCluster again(options);
  ASSERT_TRUE(again.StartServers());
  again.StartWorkers(2);
  ASSERT_TRUE(Await([&] {
    return again.worker(0).Output().find("checkpoint.worker_state: false") != std::string::npos ||
           again.worker(1).Output().find("checkpoint.worker_state: false") != std::string::npos;
  }));
  again.KillAll();
}

}  // namespace
}  // namespace catchment
