// Workers and evaluators that die while a job runs.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr int kEpochs = 25;
constexpr uint64_t kSamples = kEpochs * 2000;
// Long enough to see all that happens; such a job is ended by its test.
constexpr char kEndless[] = "epochs: 1000000 ";
constexpr char kShortTimeout[] = "faults { heartbeat_timeout_seconds: 2 } ";

class KilledWorkerTest : public testing::TestWithParam<std::string> {};

TEST_P(KilledWorkerTest, OthersTrainItsShare) {
  const std::string more = absl::StrCat("workers: 3 batch_size: 32 epochs: ", kEpochs, " ", kShortTimeout);
  TestCluster cluster({SmallJob(GetParam(), more), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(3));
  // One step of each: on a busy machine two of them may train most of the budget.
  ASSERT_TRUE(cluster.AwaitStatus("all three to train", AllHaveTrained(3, 1)));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(
      cluster.AwaitOutput(cluster.server(0), "considered lost; its samples are assigned to other workers"));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());

  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], kSamples) << summary.dump(2);
  // A guess is right for 0.1; runs with asynchronous updates differ.
  EXPECT_GE(summary.value("test_accuracy", 0.0), 0.7) << summary.dump(2);
}

INSTANTIATE_TEST_SUITE_P(All, KilledWorkerTest,
                         testing::Values("sync", "downpour", "easgd", "easgd_sync", "eamsgd", "sync_backup",
                                         "hybrid", "softsync", "ssp"),
                         [](const auto& info) { return info.param; });

// Its connections break at once; within its lease the test would not end.
TEST(BrokenConnectionTest, NobodyWaitsForTheLeaseOfAKilledWorker) {
  const std::string more =
      "workers: 2 batch_size: 32 epochs: 20 faults { heartbeat_timeout_seconds: 100000 }";
  TestCluster cluster({SmallJob("sync", more), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(2));
  ASSERT_TRUE(cluster.AwaitStatus("both to train", AllHaveTrained(2, 1)));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "lost its connection to server"));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], 20 * 2000) << summary.dump(2);
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
  cluster.server(0).Signal(SIGTERM);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
}

TEST(EvaluatorTest, JobEndsWithoutAnEvaluatorThatWasKilled) {
  TestCluster cluster({SmallJob("sync", absl::StrCat("epochs: 40 ", kShortTimeout))});
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitTrained(2000));
  cluster.Kill(cluster.evaluator(0));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["phase"], "DONE");
}

}  // namespace
}  // namespace catchment
