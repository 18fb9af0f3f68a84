// Synthetic jobs on real daemons: every step is taken, every contribution applied, and nothing is scored.
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr int kWorkers = 3;
constexpr int kSteps = 20;  // of every worker
constexpr int kBatch = 4;

std::string Job(const std::string& preset) {
  return absl::StrCat("name: 'synthetic' model { synthetic { parameters: 20000 step_ms: 2 spread: 0.5 } } ",
                      "data { synthetic { samples: ", kWorkers * kSteps * kBatch, " } } batch_size: ", kBatch,
                      " block_kib: 16 workers: ", kWorkers, " algorithm { preset: '", preset, "' }");
}

class SyntheticTest : public testing::TestWithParam<std::string> {};

TEST_P(SyntheticTest, TakesEveryStepAndScoresNothing) {
  TestCluster cluster({Job(GetParam()), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(kWorkers));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());

  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["samples"], kWorkers * kSteps * kBatch);
  EXPECT_EQ(summary["epochs"], 1);
  EXPECT_EQ(summary["device"], "synthetic: 2 ms a step");
  EXPECT_EQ(summary["pushes_applied"], kWorkers * kSteps);
  EXPECT_EQ(summary["pushes_non_finite"], 0);
  EXPECT_TRUE(summary["test_accuracy"].is_null());
  EXPECT_EQ(cluster.Tensors().size(), 2u);
}

// A worker that also slowed its waiting for the others down would make them wait longer from step to step,
// without end.
TEST(StragglersTest, WorkersThatAreAllSlowComeToTheEnd) {
  std::string job = Job("sync");
  absl::StrAppend(&job, " faults {");
  for (int w = 0; w < kWorkers; ++w)
    absl::StrAppend(&job, " stragglers { worker: ", w, " slowdown_factor: 4 }");
  absl::StrAppend(&job, " }");
  TestCluster cluster({job, /*servers=*/2});
  ASSERT_TRUE(cluster.Start(kWorkers));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["samples"], kWorkers * kSteps * kBatch);
}

INSTANTIATE_TEST_SUITE_P(All, SyntheticTest, testing::Values("sync", "downpour"),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace catchment
