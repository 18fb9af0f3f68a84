// Servers that are killed while another one keeps a copy of their shard (Faults.standby): they restore it,
// and the job goes on without computing anything again.
#include <csignal>
#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kEndless[] = "epochs: 1000000";  // such a job is ended by its test

// Its learning rate does not depend on the budget.
std::string Job(const std::string& preset, const std::string& budget) {
  return SmallJob(preset,
                  absl::StrCat("deterministic: true workers: 2 batch_size: 32 ", budget,
                               " checkpoint { every_updates: 20 keep: 1000000 } faults { standby: 1 } "
                               "optimizer { schedule { decay: CONSTANT warmup: 0 } }"));
}

std::function<bool(const v1::JobStatus&)> HasRecovered(uint64_t recoveries) {
  return [=](const v1::JobStatus& status) {
    return status.recoveries() >= recoveries && status.phase() == v1::JobStatus::TRAINING;
  };
}

void KillAndRestart(TestCluster* cluster, const std::vector<int>& servers) {
  for (int i : servers) cluster->server(i).Signal(SIGKILL);
  for (int i : servers) cluster->Kill(cluster->server(i));
  for (int i : servers) ASSERT_TRUE(cluster->RestartServer(i));
}

void Start(TestCluster* cluster) {
  ASSERT_TRUE(cluster->StartServers());
  cluster->StartWorkers(2);
  ASSERT_TRUE(cluster->AwaitTrained(1000));
}

// Lets the job make 100 updates more, for which every standby must have its copy. A master that has just been
// restored does not know the version yet, and counts samples that were trained before.
void TrainOn(TestCluster* cluster) {
  uint64_t version = 0;
  ASSERT_TRUE(cluster->AwaitStatus("an update", [&](const v1::JobStatus& status) {
    version = status.updates();
    return version > 0;
  }));
  ASSERT_TRUE(cluster->AwaitStatus(
      "100 updates", [&](const v1::JobStatus& status) { return status.updates() >= version + 100; }));
}

nlohmann::json Stop(TestCluster* cluster) {
  cluster->server(0).Signal(SIGTERM);
  EXPECT_TRUE(cluster->AwaitOrderlyEnd());
  return cluster->Summary();
}

// Server 2 is the standby of server 1.
TEST(StandbyTest, ServersThatAreLostOneAfterAnotherGoOn) {
  TestCluster cluster({Job("downpour", kEndless), /*servers=*/3});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  uint64_t recoveries = 0;
  for (const int server : {1, 2, 1, 2}) {
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {server}));
    ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(++recoveries)));
    ASSERT_NO_FATAL_FAILURE(TrainOn(&cluster));
  }
  EXPECT_THAT(cluster.server(0).Output(),
              HasSubstr("server 1 was lost, and has restored its shard at version "));
  EXPECT_THAT(cluster.worker(0).Output(), Not(HasSubstr("registering again")));
  const nlohmann::json summary = Stop(&cluster);
  EXPECT_EQ(summary["recoveries"], 4) << summary.dump(2);
  EXPECT_EQ(summary["updates_computed_again"], 0) << summary.dump(2);
}

// Kills server 1, and then the master.
TEST(StandbyTest, DeterministicRunHasTheSameBitsAsAnUndisturbedOne) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {1}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  // Server 1 has a copy of the master again when the job trains.
  ASSERT_NO_FATAL_FAILURE(TrainOn(&cluster));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {0}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(2)));
  uint64_t restored = 0;
  ASSERT_TRUE(cluster.AwaitStatus("an update", [&](const v1::JobStatus& status) {
    restored = status.updates();
    return restored > 0;
  }));
  // Workers stop after a step of their own, so the updates of a stop are not those of an undisturbed run.
  uint64_t checkpoint = 0;
  ASSERT_TRUE(cluster.AwaitStatus("a checkpoint after 100 updates", [&](const v1::JobStatus& status) {
    checkpoint = status.last_checkpoint();
    return checkpoint > restored + 100;
  }));
  const nlohmann::json summary = Stop(&cluster);
  EXPECT_EQ(summary["recoveries"], 2) << summary.dump(2);
  EXPECT_EQ(summary["updates_computed_again"], 0) << summary.dump(2);

  TestCluster undisturbed(
      {Job("sync", absl::StrCat("updates: ", checkpoint)), /*servers=*/2, TestDirectory() + "/undisturbed"});
  ASSERT_TRUE(undisturbed.StartServers());
  undisturbed.StartWorkers(2);
  ASSERT_TRUE(undisturbed.AwaitOrderlyEnd());
  for (const int shard : {0, 1}) {
    const std::string name =
        absl::StrCat("checkpoints/checkpoint-", checkpoint, "/shard-", shard, "-of-2.safetensors");
    EXPECT_EQ(LargestDifference(cluster.Tensors(name), undisturbed.Tensors(name)), 0) << name;
  }
}

// Both copies of both shards are lost.
TEST(StandbyTest, WhenAllServersAreLostTheJobGoesBackToACheckpoint) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {0, 1}));
  ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(1)));
  ASSERT_NO_FATAL_FAILURE(TrainOn(&cluster));
  EXPECT_EQ(Stop(&cluster)["recoveries"], 1);
}

// The shard of server 1 and its copy are lost; the master and its shard are not.
TEST(StandbyTest, WhenAServerAndItsStandbyAreLostTheJobGoesBackToACheckpoint) {
  TestCluster cluster({Job("downpour", kEndless), /*servers=*/3});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {1, 2}));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "; went back to "));
  ASSERT_NO_FATAL_FAILURE(TrainOn(&cluster));
  EXPECT_GE(Stop(&cluster)["recoveries"], 1);
}

TEST(StandbyTest, MasterThatIsLostGoesOn) {
  TestCluster cluster({Job("downpour", kEndless), /*servers=*/2});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  uint64_t recoveries = 0;
  for (const int server : {0, 0, 1, 0}) {
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {server}));
    ASSERT_TRUE(cluster.AwaitStatus("a recovery", HasRecovered(++recoveries)));
    ASSERT_NO_FATAL_FAILURE(TrainOn(&cluster));
  }
  EXPECT_THAT(cluster.server(0).Output(),
              HasSubstr("the master was lost, and has been restored at version "));
  EXPECT_THAT(cluster.worker(0).Output(), Not(HasSubstr("registering again")));
  const nlohmann::json summary = Stop(&cluster);
  EXPECT_EQ(summary["recoveries"], 4) << summary.dump(2);
  EXPECT_EQ(summary["updates_computed_again"], 0) << summary.dump(2);
}

TEST(StandbyTest, CheckpointsAreCompleteAfterARestoration) {
  TestCluster cluster({Job("sync", kEndless), /*servers=*/2});
  ASSERT_NO_FATAL_FAILURE(Start(&cluster));
  for (int i = 0; i < 3; ++i) {
    ASSERT_NO_FATAL_FAILURE(KillAndRestart(&cluster, {1}));
    const absl::StatusOr<v1::JobStatus> status = cluster.Status();
    ASSERT_TRUE(status.ok()) << status.status();
    ASSERT_TRUE(cluster.AwaitStatus("a later checkpoint", [&](const v1::JobStatus& now) {
      return now.last_checkpoint() > status->last_checkpoint();
    }));
  }
  const nlohmann::json summary = Stop(&cluster);
  EXPECT_EQ(summary["phase"], "STOPPED") << summary.dump(2);
  EXPECT_EQ(summary["recoveries"], 3) << summary.dump(2);
}

}  // namespace
}  // namespace catchment
