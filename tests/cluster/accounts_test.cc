// The samples in the center are those of the budget, whatever happens to workers: for every preset, with a
// worker that is killed at a random moment and others that join.
#include <csignal>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/checkpoint/checkpoint.h"
#include "common/job/presets.h"
#include "common/random_id.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr uint64_t kEpochs = 6;
constexpr uint64_t kBudget = kEpochs * 2000;  // samples of SmallJob

// Each block has the samples of the budget, but for those that came too late for their update. Of what was
// computed a second time, as part of the blocks had it and part not, some blocks have more.
void ExpectRightAccounts(const TestCluster& cluster) {
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_EQ(summary["samples"], kBudget);
  EXPECT_EQ(summary["pushes_non_finite"], 0);
  const uint64_t repeated = summary["repeated_samples"];
  const absl::StatusOr<FoundCheckpoint> last = FindLatest(cluster.checkpoint_dir());
  ASSERT_TRUE(last.ok()) << last.status();
  const absl::StatusOr<std::vector<ShardFile>> shards = OpenShards(cluster.checkpoint_dir(), last->manifest);
  ASSERT_TRUE(shards.ok()) << shards.status();
  for (const ShardFile& shard : *shards) {
    for (const v1::BlockState& block : shard.state.blocks()) {
      EXPECT_GE(block.samples() + block.late_samples(), kBudget) << block.DebugString();
      EXPECT_LE(block.samples() + block.late_samples(), kBudget + repeated) << block.DebugString();
    }
  }
}

class AccountsTest : public testing::TestWithParam<std::string> {};

TEST_P(AccountsTest, HoldWhenAWorkerIsKilledAndOthersJoin) {
  TestCluster cluster({SmallJob(GetParam(), absl::StrCat("epochs: ", kEpochs,
                                                         " batch_size: 10 workers: 2 "
                                                         "faults { worker_lease_seconds: 2 } ")),
                       /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  const uint64_t moment = 500 + RandomId() % 3000;
  SCOPED_TRACE(absl::StrCat("killed after ", moment, " samples"));
  ASSERT_TRUE(cluster.AwaitTrained(moment));
  cluster.Kill(cluster.worker(1));
  cluster.StartWorkers(4);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  ExpectRightAccounts(cluster);
}

std::vector<std::string> Names() {
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) names.push_back(preset.name);
  return names;
}

INSTANTIATE_TEST_SUITE_P(Presets, AccountsTest, testing::ValuesIn(Names()),
                         [](const auto& info) { return info.param; });

// Rounds of 100 steps: what a worker has computed and not pushed when it is killed is computed again, and
// what others have not pushed when the samples are all dealt is pushed before the job ends.
TEST(LocalStepsTest, SamplesOfRoundsThatWereNotPushedAreComputedAgain) {
  const std::string job =
      absl::StrReplaceAll(SmallJob("local_sgd", absl::StrCat("epochs: ", kEpochs,
                                                             " batch_size: 10 workers: 2 "
                                                             "faults { worker_lease_seconds: 2 } ")),
                          {{"preset: \"local_sgd\"",
                            "preset: \"local_sgd\" consistency { groups: 0 } "
                            "contribution { pseudo_gradient { local_steps: 100 } } "}});
  TestCluster cluster({job, /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  ASSERT_TRUE(cluster.AwaitTrained(1500));
  cluster.Kill(cluster.worker(1));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  ExpectRightAccounts(cluster);
}

}  // namespace
}  // namespace catchment
