// Every preset trains, on real daemons, to what its algorithm can do, and leaves a full summary.
#include "common/job/presets.h"

#include <algorithm>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"
#include "common/job/consistency_kinds.h"
#include "gmock/gmock.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

constexpr int kEpochs = CATCHMENT_EPOCHS;  // BUILD
constexpr uint64_t kSamples = kEpochs * 2000;

std::string Job(const std::string& preset, int workers) {
  return SmallJob(preset, absl::StrCat("workers: ", workers, " batch_size: 32 epochs: ", kEpochs));
}

constexpr uint64_t kMinibatches = kEpochs * 63;  // of 32 samples; the last of an epoch has 16

const v1::Algorithm& AlgorithmOf(const std::string& preset) { return FindPreset(preset)->algorithm; }
const v1::Consistency& ConsistencyOf(const std::string& preset) { return AlgorithmOf(preset).consistency(); }
bool IsSynchronous(const std::string& preset) { return catchment::IsSynchronous(ConsistencyOf(preset)); }
// Several contributions make an update, at each worker's own pace.
bool CollectsContributions(const std::string& preset) {
  const v1::Consistency& consistency = ConsistencyOf(preset);
  return !IsSynchronous(preset) && (NumGroups(consistency) > 0 || IsBuffered(consistency));
}

// No contribution is stale: those that would be are dropped.
bool DropsLate(const std::string& preset) {
  return !IsSynchronous(preset) && !KindOf(ConsistencyOf(preset)).has_staleness;
}

// Updates are made of several gradients of the same weights.
bool AveragesGradients(const std::string& preset) {
  return NumGroups(ConsistencyOf(preset)) > 0 && AlgorithmOf(preset).contribution().has_gradient();
}

class PresetTest : public testing::TestWithParam<std::string> {};

TEST_P(PresetTest, TrainsWithThreeWorkersOnTwoServers) {
  TestCluster cluster({Job(GetParam(), 3), /*servers=*/2});
  ASSERT_TRUE(cluster.Start(3));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());

  const nlohmann::json summary = cluster.Summary();
  EXPECT_EQ(summary["phase"], "DONE") << summary.dump(2);
  EXPECT_EQ(summary["algorithm"], GetParam());
  EXPECT_EQ(summary["servers"], 2);
  EXPECT_EQ(summary["workers"], 3);
  EXPECT_EQ(summary["samples"], kSamples);
  EXPECT_EQ(summary["epochs"], kEpochs);
  // A guess is right for 0.1; runs with asynchronous updates differ. On a busy machine most contributions to
  // a quorum may be late.
  const bool quorum = ConsistencyOf(GetParam()).has_quorum();
  EXPECT_GE(summary.value("test_accuracy", 0.0), quorum ? 0.4 : 0.7) << summary.dump(2);
  // The whole test set was scored, with the final weights: a bad center is as good as a guess, 2.3.
  EXPECT_LT(summary.value("test_loss", 9.0), quorum ? 2.0 : 1.0) << summary.dump(2);
  EXPECT_GT(summary["wall_seconds"], 0.0);
  EXPECT_GT(summary["samples_per_second"], 0.0);
  EXPECT_GT(summary["bytes_pushed"], 0);
  EXPECT_GT(summary["bytes_pulled"], 0);
  EXPECT_THAT(std::string(summary["device"]), testing::HasSubstr("cpu"));
  EXPECT_EQ(summary["staleness_per_worker"].size(), 3u) << summary.dump(2);
  if (!DropsLate(GetParam())) {
    EXPECT_EQ(summary["pushes_late"], 0);
  }
  EXPECT_EQ(summary["pushes_non_finite"], 0);
  EXPECT_EQ(summary["pushes_duplicate"], 0);
  EXPECT_EQ(summary["noise_updates"].is_number(), AveragesGradients(GetParam())) << summary["noise_updates"];
  if (AveragesGradients(GetParam())) {
    EXPECT_GT(summary["noise_trace"], 0.0);
  }
  if (AveragesGradients(GetParam()) && IsSynchronous(GetParam())) {
    EXPECT_GE(summary["noise_updates"], uint64_t{summary["updates"]} / 8) << "one in seven";
  }
  if (IsSynchronous(GetParam())) {
    EXPECT_EQ(summary["staleness_max"], 0.0);
    const uint32_t fragments = AlgorithmOf(GetParam()).contribution().pseudo_gradient().fragments();
    EXPECT_EQ(summary["pushes_applied"], 3 * uint64_t{summary["updates"]} * std::max(1u, fragments));
  } else if (CollectsContributions(GetParam())) {
    if (!AlgorithmOf(GetParam()).contribution().has_pseudo_gradient()) {
      EXPECT_EQ(uint64_t{summary["pushes_applied"]} + uint64_t{summary["pushes_late"]}, kMinibatches);
    }
    EXPECT_GT(summary["pushes_applied"], summary["updates"]);
    EXPECT_EQ(summary["staleness_max"] == 0.0, DropsLate(GetParam()));
  } else {
    EXPECT_GT(summary["staleness_max"], 0.0) << "three workers, and none ever saw another's update";
    EXPECT_EQ(summary["pushes_applied"], summary["updates"]);
  }
}

INSTANTIATE_TEST_SUITE_P(All, PresetTest, testing::ValuesIn(PresetNames()),
                         [](const auto& info) { return info.param; });

TEST(SummaryTest, HasEveryKeyThatScriptsRelyOn) {
  TestCluster cluster({SmallJob("sync", "epochs: 1")});
  ASSERT_TRUE(cluster.Start(1));
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  const nlohmann::json summary = cluster.Summary();
  for (const char* key :
       {"algorithm", "servers", "workers", "device", "epochs", "samples", "updates", "wall_seconds",
        "samples_per_second", "test_accuracy", "test_loss", "staleness_mean", "staleness_p99",
        "pushes_applied", "bytes_pushed", "bytes_pulled"}) {
    EXPECT_TRUE(summary.contains(key)) << key;
  }
  std::ifstream metrics(cluster.out_dir() + "/metrics.jsonl");
  int lines = 0;
  for (std::string line; std::getline(metrics, line); ++lines) {
    EXPECT_TRUE(nlohmann::json::accept(line)) << line;
  }
  EXPECT_GT(lines, 0);
}

TEST(StalenessTest, LoneAsynchronousWorkerNeverMeetsANewerVersion) {
  for (const char* preset : {"downpour", "easgd"}) {
    TestCluster cluster({SmallJob(preset, "epochs: 4"), /*servers=*/2, TestDirectory() + "/" + preset});
    ASSERT_TRUE(cluster.StartServers());
    cluster.StartWorkers(1);
    ASSERT_TRUE(cluster.AwaitOrderlyEnd());
    const nlohmann::json summary = cluster.Summary();
    EXPECT_EQ(summary["staleness_max"], 0.0) << summary.dump(2);
    EXPECT_EQ(summary["samples"], 8000);
    EXPECT_TRUE(summary["test_accuracy"].is_null()) << "there was no evaluator";
  }
}

}  // namespace
}  // namespace catchment
