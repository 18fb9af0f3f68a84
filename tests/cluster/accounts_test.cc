// The samples in the center are those of the budget, whatever happens: with a worker that is killed at a
// random moment and others that join, with a job that is killed and resumed, and with a job that is stopped
// and resumed with other algorithms.
#include <cmath>
#include <csignal>
#include <filesystem>
#include <functional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/base/random.h"
#include "common/checkpoint/checkpoint.h"
#include "common/job/presets.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr uint64_t kEpoch = 2000;  // samples of SmallJob
constexpr uint64_t kEpochs = 6;
constexpr uint64_t kBudget = kEpochs * kEpoch;
constexpr uint64_t kEndless = 1000000;  // epochs; such a job is ended by its test

// Each block has the samples of the `budget`, but for those that came too late for their update. Some blocks
// have more: samples that only a part of the blocks had after a loss or a resume were computed again, and the
// job says how many there were.
void ExpectRightAccounts(const TestCluster& cluster, uint64_t budget) {
  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE");
  EXPECT_EQ(summary["samples"], budget);
  EXPECT_EQ(summary["pushes_non_finite"], 0);
  for (const auto& [name, values] : cluster.Tensors()) {
    EXPECT_THAT(values, testing::Each(testing::ResultOf([](float v) { return std::isfinite(v); }, true)))
        << name;
  }
  const auto repeated = summary["repeated_samples"].get<uint64_t>();
  const absl::StatusOr<FoundCheckpoint> last = FindLatest(cluster.checkpoint_dir());
  ASSERT_TRUE(last.ok()) << last.status();
  const absl::StatusOr<std::vector<ShardFile>> shards = OpenShards(cluster.checkpoint_dir(), last->manifest);
  ASSERT_TRUE(shards.ok()) << shards.status();
  for (const ShardFile& shard : *shards) {
    for (const v1::BlockState& block : shard.state.blocks()) {
      EXPECT_GE(block.samples() + block.late_samples(), budget) << block.DebugString();
      EXPECT_LE(block.samples() + block.late_samples(), budget + repeated) << block.DebugString();
    }
  }
}

// Returns the text of a job of that number of epochs.
using JobOfEpochs = std::function<std::string(uint64_t epochs)>;

// Ends an endless job, and returns its summary.
nlohmann::json Stop(TestCluster* cluster) {
  cluster->server(0).Signal(SIGTERM);
  EXPECT_TRUE(cluster->AwaitOrderlyEnd());
  const nlohmann::json summary = cluster->Summary();
  EXPECT_EQ(summary["phase"], "STOPPED") << summary.dump(2);
  return summary;
}

// Resumes a job of that number of workers that was stopped, with a budget to its end.
void ExpectRightAccountsAtTheEnd(const JobOfEpochs& job, int workers = 2) {
  TestCluster::Options options{"", /*servers=*/2};
  const absl::StatusOr<FoundCheckpoint> last = FindLatest(options.directory + "/out/checkpoints");
  ASSERT_TRUE(last.ok()) << last.status();
  // Samples of this epoch have been assigned and must be trained whatever the budget is.
  const uint64_t epochs = last->manifest.master().next_epoch() + 2;
  options.job = job(epochs);
  options.resume = AutoSwitch::kOn;
  TestCluster cluster(options);
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(workers);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  ExpectRightAccounts(cluster, epochs * kEpoch);
}

class AccountsTest : public testing::TestWithParam<std::string> {};

TEST_P(AccountsTest, HoldWhenAWorkerIsKilledAndOthersJoin) {
  const auto job = [](uint64_t epochs) {
    return SmallJob(GetParam(), absl::StrCat("epochs: ", epochs,
                                             " batch_size: 10 workers: 2 "
                                             "faults { heartbeat_timeout_seconds: 2 } "));
  };
  {
    TestCluster cluster({job(kEndless), /*servers=*/2});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    const uint64_t moment = 500 + RandomId() % 3000;
    SCOPED_TRACE(absl::StrCat("killed after ", moment, " samples"));
    ASSERT_TRUE(cluster.AwaitTrained(moment));
    cluster.Kill(cluster.worker(1));
    cluster.StartWorkers(4);
    ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "its samples are assigned to other workers"));
    ASSERT_TRUE(cluster.AwaitStatus("the others to train", AllHaveTrained(5, 10)));
    Stop(&cluster);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRightAccountsAtTheEnd(job));
}

// Trains until there is a checkpoint, then kills every process. Returns false if that checkpoint is the last
// one, as it may be where this process has to wait for a processor.
bool TrainAndKillAll(const std::string& job) {
  TestCluster cluster({job, /*servers=*/2});
  EXPECT_TRUE(cluster.StartServers());
  cluster.StartWorkers(2);
  const auto saved = cluster.AwaitStatus(
      "a checkpoint", [](const v1::JobStatus& status) { return status.last_checkpoint() > 0; });
  cluster.KillAll();
  const absl::StatusOr<FoundCheckpoint> found = FindLatest(cluster.checkpoint_dir());
  return saved && found.ok() && found->manifest.master().samples() < kBudget;
}

// If a contribution was in flight when a checkpoint was taken, only some blocks include its samples, which
// are computed again.
TEST_P(AccountsTest, HoldWhenAJobIsKilledAndResumed) {
  const std::string job = SmallJob(
      GetParam(),
      absl::StrCat("epochs: ", kEpochs,
                   " batch_size: 10 workers: 2 checkpoint { every_seconds: 0.05 keep: 1000 } ", kUnhurried));
  TestCluster::Options options{job, /*servers=*/2};
  int attempt = 0;
  while (!TrainAndKillAll(job)) {
    ASSERT_LT(++attempt, 10) << "each time the job was done before it could be killed";
    std::filesystem::remove_all(options.directory);
  }
  options.resume = AutoSwitch::kOn;
  TestCluster resumed(options);
  ASSERT_TRUE(resumed.StartServers());
  resumed.StartWorkers(2);
  ASSERT_TRUE(resumed.AwaitOrderlyEnd());
  ExpectRightAccounts(resumed, kBudget);
}

// With standbys no sample is trained twice.
TEST_P(AccountsTest, HoldExactlyWhenServersAreRestoredFromTheirStandbys) {
  const auto job = [](uint64_t epochs) {
    return SmallJob(GetParam(), absl::StrCat("epochs: ", epochs,
                                             " batch_size: 10 workers: 2 faults { standby: 1 } "
                                             "checkpoint { every_seconds: 0.05 } "));
  };
  {
    TestCluster cluster({job(kEndless), /*servers=*/2});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    const uint64_t moment = 500 + RandomId() % 3000;
    SCOPED_TRACE(absl::StrCat("killed after ", moment, " samples"));
    ASSERT_TRUE(cluster.AwaitTrained(moment));
    for (int server : {1, 0}) {
      cluster.Kill(cluster.server(server));
      ASSERT_TRUE(cluster.RestartServer(server));
      const uint64_t recoveries = server == 1 ? 1 : 2;
      ASSERT_TRUE(cluster.AwaitStatus("a recovery",
                                      [=](const auto& status) { return status.recoveries() == recoveries; }));
      // When samples are trained, server 1 has a copy of the master again.
      ASSERT_TRUE(cluster.AwaitTrained(cluster.Status()->samples() + 1));
    }
    const nlohmann::json summary = Stop(&cluster);
    EXPECT_EQ(summary["recoveries"], 2);
    EXPECT_EQ(summary["updates_computed_again"], 0);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRightAccountsAtTheEnd(job));
}

// The job goes back to a checkpoint, or to its beginning, with the same workers.
TEST_P(AccountsTest, HoldWhenAServerIsKilledAndComesBack) {
  const auto job = [](uint64_t epochs) {
    return SmallJob(
        GetParam(),
        absl::StrCat("epochs: ", epochs, " batch_size: 10 workers: 2 checkpoint { every_seconds: 0.05 } "));
  };
  {
    TestCluster cluster({job(kEndless), /*servers=*/2});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    const uint64_t moment = 500 + RandomId() % 3000;
    SCOPED_TRACE(absl::StrCat("killed after ", moment, " samples"));
    ASSERT_TRUE(cluster.AwaitTrained(moment));
    cluster.Kill(cluster.server(1));
    ASSERT_TRUE(cluster.RestartServer(1));
    // Both workers are back: the end of the job is told to members.
    ASSERT_TRUE(cluster.AwaitStatus("a recovery", [](const auto& status) {
      return status.recoveries() == 1 && AllHaveTrained(2, 1)(status);
    }));
    const nlohmann::json summary = Stop(&cluster);
    EXPECT_EQ(summary["recoveries"], 1);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRightAccountsAtTheEnd(job));
}

// Returns the first preset of each pair of a contribution and a consistency: compensations and optimizers
// count no samples. tests/chaos covers all presets.
std::vector<std::string> PresetsOfAllPairs() {
  std::set<std::pair<int, int>> pairs;
  std::vector<std::string> names;
  for (const Preset& preset : Presets()) {
    const v1::Algorithm& algorithm = preset.algorithm;
    if (pairs.emplace(algorithm.contribution().kind_case(), algorithm.consistency().kind_case()).second) {
      names.push_back(preset.name);
    }
  }
  return names;
}

INSTANTIATE_TEST_SUITE_P(Presets, AccountsTest, testing::ValuesIn(PresetsOfAllPairs()),
                         [](const auto& info) { return info.param; });

// A job is stopped at random moments, and resumed each time as the next of `presets`.
void ExpectRightAccountsThrough(const std::vector<std::string>& presets) {
  const auto job = [](const std::string& preset, uint64_t epochs) {
    return SmallJob(preset, absl::StrCat("epochs: ", epochs, " batch_size: 10 workers: 2 "));
  };
  uint64_t samples = 0;
  for (const std::string& preset : presets) {
    SCOPED_TRACE(absl::StrCat("with ", preset, " from ", samples, " samples on"));
    TestCluster::Options options{job(preset, kEndless), /*servers=*/2};
    options.resume = samples > 0 ? AutoSwitch::kOn : AutoSwitch::kOff;
    TestCluster cluster(options);
    ASSERT_TRUE(cluster.Start(2));
    ASSERT_TRUE(cluster.AwaitStatus("training", AllHaveTrained(2, 100 + RandomId() % 500)));
    const nlohmann::json summary = Stop(&cluster);
    samples = summary["samples"];
  }
  ASSERT_NO_FATAL_FAILURE(
      ExpectRightAccountsAtTheEnd([&](uint64_t epochs) { return job(presets.front(), epochs); }));
}

TEST(ResumedAccountsTest, HoldFromEachPresetToTheNext) { ExpectRightAccountsThrough(PresetNames()); }

// Each ordered pair of two families occurs once.
TEST(ResumedAccountsTest, HoldFromEachFamilyToEachOther) {
  const std::vector<std::string> families = {"sync", "downpour", "hybrid", "easgd", "local_sgd"};
  std::vector<std::string> walk;
  for (size_t i = 0; i < families.size(); ++i) {
    for (size_t j = i + 1; j < families.size(); ++j) walk.insert(walk.end(), {families[i], families[j]});
  }
  ExpectRightAccountsThrough(walk);
}

// Rounds of 100 steps: what a worker has computed and not pushed when it is killed is computed again, and
// gradients that others have not pushed when all samples are assigned are pushed before the job ends.
TEST(LocalStepsTest, SamplesOfRoundsThatWereNotPushedAreComputedAgain) {
  const auto job = [](uint64_t epochs) {
    return absl::StrReplaceAll(
        SmallJob("local_sgd", absl::StrCat("epochs: ", epochs,
                                           " batch_size: 10 workers: 2 "
                                           "faults { heartbeat_timeout_seconds: 2 } ")),
        {{"preset: \"local_sgd\"",
          "preset: \"local_sgd\" consistency { asynchronous {} } "
          "contribution { pseudo_gradient { local_steps: 100 } } "}});
  };
  {
    TestCluster cluster({job(kEndless), /*servers=*/2});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(2);
    ASSERT_TRUE(cluster.AwaitTrained(1500));
    cluster.Kill(cluster.worker(1));
    ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "its samples are assigned to other workers"));
    Stop(&cluster);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRightAccountsAtTheEnd(job));
}

// Dropped contributions count as begun, in the schedule and in the budget.
TEST(StalenessLimitTest, SamplesOfContributionsThatAreDroppedAreInTheAccounts) {
  const auto job = [](uint64_t epochs) {
    return absl::StrReplaceAll(
        SmallJob("downpour", absl::StrCat("epochs: ", epochs,
                                          " batch_size: 10 workers: 4 "
                                          "faults { heartbeat_timeout_seconds: 2 } ")),
        {{"preset: \"downpour\"",
          "preset: \"downpour\" consistency { asynchronous { staleness_limit: 1 } } "}});
  };
  {
    TestCluster cluster({job(kEndless), /*servers=*/2});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(4);
    ASSERT_TRUE(cluster.AwaitTrained(1500));
    cluster.Kill(cluster.worker(1));
    ASSERT_TRUE(cluster.AwaitOutput(cluster.server(0), "its samples are assigned to other workers"));
    Stop(&cluster);
  }
  ASSERT_NO_FATAL_FAILURE(ExpectRightAccountsAtTheEnd(job, /*workers=*/4));
}

}  // namespace
}  // namespace catchment
