// Losses of servers, workers and the master in virtual time: jobs end, with each sample in every shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/server/control/virtual_cluster.h"

namespace catchment {
namespace {

VirtualCluster::Options JobOf(bool synchronous, bool standby) {
  VirtualCluster::Options options;
  options.job = {
      .synchronous = synchronous, .workers = 3, .batch_size = 4, .epochs = 20, .every_updates = 20};
  options.standby = standby;
  return options;
}

class ControlLoopTest : public testing::TestWithParam<bool> {};

TEST_P(ControlLoopTest, TrainsEverySampleOnce) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 0);
}

TEST_P(ControlLoopTest, GoesBackToTheCheckpointAfterTheLossOfAServer) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
  cluster.RunUntil(3);
  ASSERT_GT(cluster.loop().Status().last_checkpoint(), 0u);
  cluster.LoseServer(1);
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, GoesBackToTheCheckpointAfterTheLossOfTheMaster) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
  cluster.RunUntil(3);
  cluster.LoseMaster();
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, BeginsAgainBeforeTheFirstCheckpoint) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
  cluster.RunUntil(0.4);
  cluster.LoseServer(1);
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, RestoresAServerFromItsStandby) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/true));
  cluster.RunUntil(3);
  const uint64_t run = cluster.loop().run().run_id;
  cluster.LoseServer(1);
  cluster.RunUntil(8);
  EXPECT_EQ(cluster.loop().run().run_id, run);
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, ContinuesTheMasterFromItsStandby) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/true));
  cluster.RunUntil(3);
  const uint64_t run = cluster.loop().run().run_id;
  cluster.LoseMaster();
  cluster.RunUntil(8);
  EXPECT_EQ(cluster.loop().run().run_id, run);
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, GoesBackAfterTheLossOfAllServers) {
  VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
  cluster.RunUntil(3);
  cluster.LoseServer(1);
  cluster.LoseMaster();
  cluster.Run();
  cluster.ExpectAllIsTrained();
  EXPECT_EQ(cluster.more_than_once(), 0);
  EXPECT_EQ(cluster.recoveries(), 1);
}

TEST_P(ControlLoopTest, GoesBackTwiceInARow) {
  for (const int server : {0, 1}) {
    VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
    for (const double time : {3, 9}) {
      cluster.RunUntil(time);
      ASSERT_EQ(cluster.loop().Status().phase(), v1::JobStatus::TRAINING);
      server == 0 ? cluster.LoseMaster() : cluster.LoseServer(server);
    }
    cluster.Run();
    cluster.ExpectAllIsTrained();
    EXPECT_EQ(cluster.more_than_once(), 0);
    EXPECT_EQ(cluster.recoveries(), 2);
  }
}

// The second loss is at each of many moments from the return of server 1 until the job trains again.
TEST_P(ControlLoopTest, GoesBackAgainWhileTheJobGoesBack) {
  for (const int server : {0, 1}) {
    for (double moment = 4; moment < 8; moment += 0.1) {
      SCOPED_TRACE(absl::StrCat("server ", server, " at ", moment, " s"));
      VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
      cluster.RunUntil(3);
      cluster.LoseServer(1);
      cluster.RunUntil(moment);
      server == 0 ? cluster.LoseMaster() : cluster.LoseServer(server);
      cluster.Run();
      ASSERT_FALSE(HasFatalFailure());
      cluster.ExpectAllIsTrained();
      EXPECT_EQ(cluster.more_than_once(), 0);
      EXPECT_GE(cluster.recoveries(), 1);
    }
  }
}

// The workers are done, and the manifest of the last checkpoint cannot be written, when the server is lost.
// The job goes back only if its files must be made again.
TEST_P(ControlLoopTest, EndsAfterALossBeforeTheLastCheckpointIsWritten) {
  for (const int server : {0, 1}) {
    VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
    cluster.RunUntil(3);
    cluster.SetDisk(absl::ResourceExhaustedError("the disk is full"));
    cluster.RunUntil(60);
    ASSERT_FALSE(cluster.ended()) << cluster.last().DebugString();
    ASSERT_EQ(cluster.loop().Status().samples(), 20 * 200);
    ASSERT_NE(cluster.loop().Status().phase(), v1::JobStatus::DONE);
    server == 0 ? cluster.LoseMaster() : cluster.LoseServer(server);
    cluster.SetDisk(absl::OkStatus());
    cluster.Run();
    cluster.ExpectAllIsTrained();
    EXPECT_EQ(cluster.more_than_once(), 0);
    EXPECT_LE(cluster.recoveries(), 1);
  }
}

TEST_P(ControlLoopTest, FailsIfAServerStaysAway) {
  for (const bool master_too : {false, true}) {
    VirtualCluster cluster(JobOf(GetParam(), /*standby=*/false));
    cluster.RunUntil(3);
    cluster.LoseServer(1, /*comes_back=*/false);
    if (master_too) cluster.LoseMaster();
    cluster.Run();
    EXPECT_EQ(cluster.last().phase(), v1::JobStatus::FAILED);
    EXPECT_THAT(cluster.last().reason(),
                testing::AllOf(testing::HasSubstr("server 1"),
                               testing::HasSubstr("start all servers again with --resume")));
  }
}

INSTANTIATE_TEST_SUITE_P(Modes, ControlLoopTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Synchronous" : "Asynchronous"; });

// Jobs with random losses.
class ControlLoopChurnTest : public testing::TestWithParam<int> {};

TEST_P(ControlLoopChurnTest, LosesNoSample) {
  constexpr int kJobs = 50;
  int losses = 0;
  for (int i = 0; i < kJobs; ++i) {
    const uint64_t seed = 1000 * GetParam() + i;
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    VirtualCluster::Options options = JobOf(/*synchronous=*/(seed & 1) != 0, /*standby=*/(seed & 2) != 0);
    options.seed = seed;
    options.servers = 2 + static_cast<int>(seed % 3);
    options.worker_losses = 15;
    options.server_losses = 12;
    options.master_losses = 12;
    options.losses_end = 60;
    VirtualCluster cluster(options);
    cluster.Run();
    if (HasFatalFailure()) return;
    cluster.ExpectAllIsTrained();
    if (HasFailure()) return;
    losses += cluster.losses();
  }
  EXPECT_GT(losses, kJobs);
}

INSTANTIATE_TEST_SUITE_P(Seeds, ControlLoopChurnTest, testing::Range(1, 5));

// Workers are lost, leave and stall, and push every `push_period` steps; with `restarts` the master is
// replaced again and again by one that is restored from its image.
struct Churn {
  bool synchronous;
  uint32_t push_period;
  bool restarts;
};

class ControlLoopWorkersTest : public testing::TestWithParam<Churn> {};

TEST_P(ControlLoopWorkersTest, AssignsEverySampleToOneWorkerAtATime) {
  for (uint64_t seed = 1; seed <= 5; ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    VirtualCluster::Options options = JobOf(GetParam().synchronous, GetParam().restarts);
    options.job.push_period = GetParam().push_period;
    options.job.batch_size = 7;
    options.job.epochs = GetParam().synchronous ? 6 : 15;
    options.samples = 1009;
    options.seed = seed;
    options.worker_losses = options.worker_leaves = options.worker_stalls = 8;
    options.late_pushes = 0.3;
    options.master_losses = GetParam().restarts ? 3 : 0;
    VirtualCluster cluster(options);
    cluster.Run();
    if (HasFatalFailure()) return;
    cluster.ExpectAllIsTrained();
    EXPECT_GT(cluster.losses(), GetParam().restarts ? 20 : 3);
    EXPECT_GT(cluster.checkpoints(), 3);
    if (HasFailure()) return;
  }
}

INSTANTIATE_TEST_SUITE_P(Jobs, ControlLoopWorkersTest,
                         testing::Values(Churn{false, 1, false}, Churn{false, 1, true},
                                         Churn{false, 3, false}, Churn{false, 3, true}, Churn{true, 1, false},
                                         Churn{true, 1, true}, Churn{true, 3, false}, Churn{true, 3, true}),
                         [](const auto& info) {
                           return absl::StrCat(info.param.synchronous ? "Synchronous" : "Asynchronous",
                                               "PushPeriod", info.param.push_period,
                                               info.param.restarts ? "Restarts" : "");
                         });

}  // namespace
}  // namespace catchment
