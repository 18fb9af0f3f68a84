// A synchronous job with `deterministic: true` is a function of its job file: of its seed, and not of who ran
// it.
#include "absl/strings/str_cat.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

std::string Job(int workers, int batch_size, const std::string& more = "",
                const std::string& preset = "sync") {
  return SmallJob(
      preset, absl::StrCat("deterministic: true workers: ", workers, " batch_size: ", batch_size, " ", more));
}

// A run's trained weights, with the model's file.
struct Trained {
  std::map<std::string, std::vector<float>> tensors;
  std::string bytes;
};

void Train(const std::string& name, const std::string& job, int servers, int workers, Trained* trained) {
  TestCluster cluster({job, servers, TestDirectory() + "/" + name});
  ASSERT_TRUE(cluster.StartServers());
  cluster.StartWorkers(workers);
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  *trained = {cluster.Tensors(), cluster.ModelBytes()};
}

TEST(DeterministicTest, TwoRunsWriteTheSameFile) {
  for (const char* preset : {"sync", "easgd_sync"}) {
    Trained one, other;
    Train(absl::StrCat(preset, "-one"), Job(3, 32, "epochs: 3", preset), 2, 3, &one);
    Train(absl::StrCat(preset, "-other"), Job(3, 32, "epochs: 3", preset), 2, 3, &other);
    EXPECT_FALSE(one.bytes.empty());
    EXPECT_TRUE(one.bytes == other.bytes) << preset << ": the largest difference of a weight is "
                                          << LargestDifference(one.tensors, other.tensors);
  }
}

TEST(DeterministicTest, AnotherSeedTrainsOtherWeights) {
  Trained one, other;
  Train("one", Job(2, 32, "epochs: 1 seed: 1"), 1, 2, &one);
  Train("other", Job(2, 32, "epochs: 1 seed: 2"), 1, 2, &other);
  EXPECT_GT(LargestDifference(one.tensors, other.tensors), 1e-3);
}

TEST(DeterministicTest, NumberOfServersChangesNoBit) {
  Trained one, three;
  Train("one", Job(2, 32, "epochs: 2"), 1, 2, &one);
  Train("three", Job(2, 32, "epochs: 2"), 3, 2, &three);
  EXPECT_TRUE(one.bytes == three.bytes)
      << "the largest difference of a weight is " << LargestDifference(one.tensors, three.tensors);
}

TEST(DeterministicTest, TwoWorkersDoWhatOneWithTwiceTheBatchDoes) {
  Trained two, one;
  Train("two", Job(2, 64, "epochs: 1"), 2, 2, &two);
  Train("one", Job(1, 128, "epochs: 1"), 2, 1, &one);
  const double difference = LargestDifference(two.tensors, one.tensors);
  RecordProperty("largest_difference", absl::StrCat(difference));
  std::cout << "largest difference of a weight: " << difference << std::endl;
  EXPECT_LE(difference, 1e-4);
}

// 2000 samples are 50 minibatches of 40.
TEST(DeterministicTest, MergedMinibatchesChangeNoBitWhereNoneIsLeft) {
  Trained kept, merged;
  Train("kept", Job(1, 40, "epochs: 2 last_minibatch: KEEP"), 1, 1, &kept);
  Train("merged", Job(1, 40, "epochs: 2 last_minibatch: MERGE"), 1, 1, &merged);
  EXPECT_EQ(LargestDifference(kept.tensors, merged.tensors), 0);
}

// The last of 20 steps has 176 samples.
TEST(DeterministicTest, TwoWorkersMergeTheirLastMinibatchesAsOneDoes) {
  Trained two, again, one;
  Train("two", Job(2, 48, "epochs: 2 last_minibatch: MERGE"), 2, 2, &two);
  Train("again", Job(2, 48, "epochs: 2 last_minibatch: MERGE"), 2, 2, &again);
  Train("one", Job(1, 96, "epochs: 2 last_minibatch: MERGE"), 1, 1, &one);
  EXPECT_TRUE(two.bytes == again.bytes);
  EXPECT_LE(LargestDifference(two.tensors, one.tensors), 1e-4);
}

}  // namespace
}  // namespace catchment
