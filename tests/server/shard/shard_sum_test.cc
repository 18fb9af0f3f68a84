// Contributions to an update of a group that are added up as they arrive, against shards that keep them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <memory_resource>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/job/algorithm_facts.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;

constexpr int64_t kValues = 1500;

v1::Job Synchronous(bool deterministic) {
  v1::Job job = GradientJob(true, 0.1f);
  job.mutable_optimizer()->set_momentum(0.9f);
  job.set_deterministic(deterministic);
  job.set_workers(3);
  job.set_batch_size(8);
  job.mutable_data()->mutable_synthetic()->set_samples(240);
  job.set_epochs(1);
  return job;
}

class Cluster {
 public:
  Cluster(const v1::Job& job, bool adds_up, const std::vector<uint32_t>& workers = {0, 1, 2})
      : shard_(job, kValues, kValues, workers) {
    if (adds_up) shard_.SendAgain();
  }

  void Push(uint32_t worker, uint64_t version, uint32_t samples = 8, float scale = 1) {
    Random random(100 * version + worker);
    std::vector<float> values(kValues);
    for (float& value : values) value = scale * static_cast<float>(random.Normal());
    const absl::Status status = shard_.HandleValues(
        {.worker = worker, .sequence = version + 1, .version = version, .samples = samples}, values);
    ASSERT_TRUE(status.ok()) << status;
  }
  std::vector<float> Weights() { return shard_.shard().Weights(); }
  ShardHarness& shard() { return shard_; }

 private:
  ShardHarness shard_;
};

std::vector<std::string> Names(const std::vector<Reply>& replies, bool again) {
  std::vector<std::string> names;
  for (const Reply& reply : replies) {
    if (reply.again == again) names.push_back(reply.to);
  }
  std::sort(names.begin(), names.end());
  return names;
}

constexpr uint32_t kOrders[][3] = {{0, 1, 2}, {2, 1, 0}, {1, 0, 2}, {0, 2, 1}, {2, 0, 1}};

TEST(ShardSumTest, DeterministicUpdatesHaveTheirBitsInAnyOrderOfArrival) {
  Cluster kept(Synchronous(true), false), added(Synchronous(true), true);
  uint64_t version = 0;
  for (const auto& order : kOrders) {
    for (uint32_t worker = 0; worker < 3; ++worker) kept.Push(worker, version);
    for (const uint32_t worker : order) added.Push(worker, version);
    EXPECT_THAT(Names(added.shard().Take(), false), ElementsAre("worker 0", "worker 1", "worker 2"));
    ASSERT_EQ(added.Weights(), kept.Weights()) << "update " << version;
    ++version;
  }
}

TEST(ShardSumTest, UpdatesAreTheAverageOverTheSamplesOfAll) {
  Cluster kept(Synchronous(false), false), added(Synchronous(false), true);
  const uint32_t samples[][3] = {{8, 8, 8}, {8, 8, 3}, {0, 5, 8}, {8, 0, 0}, {0, 0, 8}};
  uint64_t version = 0;
  for (const auto& order : kOrders) {
    for (uint32_t worker = 0; worker < 3; ++worker) kept.Push(worker, version, samples[version][worker]);
    for (const uint32_t worker : order) added.Push(worker, version, samples[version][worker]);
    ++version;
    const std::vector<float> weights = added.Weights(), expected = kept.Weights();
    for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(weights[i], expected[i], 1e-6) << version << " " << i;
  }
  EXPECT_EQ(added.shard().shard().Report().samples(), kept.shard().shard().Report().samples());
}

TEST(ShardSumTest, ContributionThatIsNotFiniteIsNotInTheSum) {
  Cluster kept(Synchronous(false), false), added(Synchronous(false), true);
  for (Cluster* cluster : {&kept, &added}) {
    cluster->Push(0, 0);
    cluster->Push(1, 0, 8, std::numeric_limits<float>::infinity());
    cluster->Push(2, 0);
  }
  const std::vector<float> weights = added.Weights(), expected = kept.Weights();
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(weights[i], expected[i], 1e-6) << i;
  EXPECT_EQ(added.shard().Statistics(1).non_finite(), 1u);
}

// The contribution of one that leaves cannot be removed from the sum.
TEST(ShardSumTest, OthersSendAgainWhenOneLeaves) {
  Cluster kept(Synchronous(false), false), added(Synchronous(false), true);
  for (Cluster* cluster : {&kept, &added}) {
    cluster->Push(0, 0);
    cluster->Push(1, 0);
    cluster->shard().Take();
    cluster->shard().SetRosters({MakeRoster(0, {0, 2})});
  }
  EXPECT_THAT(Names(added.shard().Take(), true), ElementsAre("worker 0", "worker 1"));
  EXPECT_FALSE(added.shard().shard().Report().marks(0).waits()) << "it has to send again";
  added.Push(2, 0);
  EXPECT_THAT(added.shard().Take(), ElementsAre()) << "one alone makes no update";
  added.Push(0, 0);
  EXPECT_THAT(Names(added.shard().Take(), false), ElementsAre("worker 0", "worker 2"));
  kept.Push(2, 0);
  const std::vector<float> weights = added.Weights(), expected = kept.Weights();
  for (int64_t i = 0; i < kValues; ++i) ASSERT_NEAR(weights[i], expected[i], 1e-6) << i;
  EXPECT_EQ(added.shard().Statistics(0).applied(), 1u);
  EXPECT_EQ(added.shard().Statistics(1).applied(), 0u);
}

TEST(ShardSumTest, ContributionThatIsSentAgainCountsOnce) {
  Cluster kept(Synchronous(true), false), added(Synchronous(true), true);
  for (uint32_t worker = 0; worker < 3; ++worker) kept.Push(worker, 0);
  for (const uint32_t worker : {0, 0, 1, 0, 1, 2}) added.Push(worker, 0);
  EXPECT_THAT(Names(added.shard().Take(), false), ElementsAre("worker 0", "worker 1", "worker 2"));
  EXPECT_EQ(added.Weights(), kept.Weights());
}

class CountingMemory final : public std::pmr::memory_resource {
 public:
  int vectors = 0;  // of the whole block

 private:
  void* do_allocate(size_t bytes, size_t alignment) override {
    vectors += bytes >= kValues * sizeof(float);
    return std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
  }
  void do_deallocate(void* memory, size_t, size_t) override { std::free(memory); }
  bool do_is_equal(const memory_resource& other) const noexcept override { return this == &other; }
};

TEST(ShardSumTest, ManyContributionsNeedOneVector) {
  std::vector<uint32_t> workers;
  for (uint32_t worker = 0; worker < 20; ++worker) workers.push_back(worker);
  for (const bool deterministic : {false, true}) {
    v1::Job job = Synchronous(deterministic);
    job.set_workers(20);
    job.mutable_data()->mutable_synthetic()->set_samples(20 * 8);
    Cluster cluster(job, true, workers);
    const auto memory = std::make_shared<CountingMemory>();
    cluster.shard().shard().pool()->UseMemory(memory);
    for (uint64_t version = 0; version < 3; ++version) {
      for (const uint32_t worker : workers) cluster.Push(worker, version);
      cluster.shard().Take();
    }
    // The sum, the contribution that arrives, and the answer.
    EXPECT_EQ(memory->vectors, 3);
  }
}

TEST(AddsUpContributions, DependsOnTheAlgorithmAndOnWholeSteps) {
  EXPECT_TRUE(AddsUpContributions(Synchronous(false)));
  EXPECT_FALSE(AddsUpContributions(GradientJob(false))) << "there is no group";
  EXPECT_FALSE(AddsUpContributions(ElasticJob(true, 0.1f))) << "each is answered with its own difference";
  v1::Job bounded = Synchronous(false);
  bounded.mutable_algorithm()->mutable_compensation()->set_step_bound(1);
  EXPECT_FALSE(AddsUpContributions(bounded));
  v1::Job whole = Synchronous(true), rest = whole, dropped = whole, part = whole;
  EXPECT_TRUE(AddsUpContributions(whole));
  rest.mutable_data()->mutable_synthetic()->set_samples(241);
  EXPECT_FALSE(AddsUpContributions(rest)) << "the last minibatch of an epoch is smaller";
  dropped.mutable_data()->mutable_synthetic()->set_samples(241);
  dropped.set_last_minibatch(v1::Job::DROP);
  EXPECT_TRUE(AddsUpContributions(dropped));
  part.set_samples(25);
  EXPECT_FALSE(AddsUpContributions(part));
}

}  // namespace
}  // namespace catchment
