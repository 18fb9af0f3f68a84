// Workers and evaluators that die while a job runs.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

// Long enough to see all that happens; such a job is ended by its test.
constexpr char kEndless[] = "epochs: 1000000 ";
constexpr char kShortTimeout[] = "faults { heartbeat_timeout_seconds: 2 } ";

void Stop(TestCluster* cluster) {
  cluster->server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster->AwaitOrderlyEnd());
  EXPECT_EQ(cluster->Summary()["phase"], "STOPPED");
}

class KilledWorkerTest : public testing::TestWithParam<std::string> {};

TEST_P(KilledWorkerTest, OthersTrainItsShare) {
  const std::string more = absl::StrCat(kEndless, "workers: 3 batch_size: 32 ", kShortTimeout);
  TestCluster cluster({SmallJob(GetParam(), more), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(3));
  ASSERT_TRUE(cluster.AwaitStatus("all three to train", AllHaveTrained(3, 1000)));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(
      cluster.AwaitOutput(cluster.server(0), "considered lost; its samples are assigned to other workers"));
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 4000)) << "the others do not go on";
  // A guess is right for 0.1.
  ASSERT_TRUE(
      cluster.AwaitStatus("the model to learn", [](const auto& now) { return now.test_accuracy() >= 0.7; }));
  Stop(&cluster);
}

INSTANTIATE_TEST_SUITE_P(All, KilledWorkerTest,
                         testing::Values("sync", "downpour", "easgd", "easgd_sync", "eamsgd", "sync_backup",
                                         "hybrid", "softsync", "ssp"),
                         [](const auto& info) { return info.param; });

// Its connections break at once; within its lease the test would not end.
TEST(BrokenConnectionTest, NobodyWaitsForTheLeaseOfAKilledWorker) {
  const std::string more =
      absl::StrCat(kEndless, "workers: 2 batch_size: 32 faults { heartbeat_timeout_seconds: 100000 }");
  TestCluster cluster({SmallJob("sync", more), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1)));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "lost its connection to server"));
  const absl::StatusOr<v1::JobStatus> status = cluster.Status();
  ASSERT_TRUE(status.ok()) << status.status();
  ASSERT_TRUE(cluster.AwaitTrained(status->samples() + 4000)) << "the other one does not go on";
  Stop(&cluster);
}

TEST(EvaluatorTest, OneThatIsToldToEndOrIsKilledIsReplacedByAnother) {
  const std::string more = absl::StrCat(kEndless, kShortTimeout, "evaluation { every_epochs: 1 }");
  TestCluster cluster({SmallJob("downpour", more), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(1));
  // Wait for an evaluation of the whole test set.
  ASSERT_TRUE(
      cluster.AwaitStatus("an evaluation", [](const auto& status) { return status.test_samples() == 500; }));
  cluster.evaluator(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitExit(cluster.evaluator(0), 0));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "left: "));

  cluster.StartEvaluator();
  ASSERT_TRUE(cluster.AwaitOutput(cluster.evaluator(1), "test accuracy"));
  cluster.Kill(cluster.evaluator(1));
  // The job does not miss it for ever.
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "sent no heartbeat for"));
  Stop(&cluster);
}

// The job, which cannot begin before, has counted on it.
TEST(EvaluatorTest, JobEndsWithoutAnEvaluatorThatWasKilled) {
  TestCluster cluster({SmallJob("sync", absl::StrCat("epochs: 4 ", kShortTimeout))});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartEvaluator();
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "joined"));
  cluster.Kill(cluster.evaluator(0));
  cluster.StartWorkers(1);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["phase"], "DONE");
}

}  // namespace
}  // namespace catchment
