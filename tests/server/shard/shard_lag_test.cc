// The staleness in seconds and the gap of the weights with which a push was computed when it is applied.
// The learning rate is 1 and weights begin at 0.
#include <gtest/gtest.h>

#include <optional>
#include <vector>

#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 40, kBlock = 16;  // three blocks

class LagTest : public testing::Test {
 protected:
  void Make(const v1::Job& job, const std::vector<uint32_t>& workers) {
    shard_.emplace(job, kValues, kBlock, workers);
  }

  void All(double now, Send send) {
    shard_->SetTime(now);
    for (uint32_t block : {0, 1, 2}) {
      send.block = block;
      const absl::Status status = shard_->Handle(send);
      ASSERT_TRUE(status.ok()) << status;
    }
  }
  void Pull(double now, uint32_t worker) {
    All(now, {.worker = worker, .operation = v1::Block::PULL, .sequence = 0});
  }

  double MaxSeconds(uint32_t worker) const { return shard_->Statistics(worker).staleness_seconds_max(); }
  double Gaps(uint32_t worker) const { return shard_->Statistics(worker).gap_sum(); }

  std::optional<ShardHarness> shard_;
};

TEST_F(LagTest, IsFromTheSendingOfTheWeightsToTheApplication) {
  Make(GradientJob(false), {0, 1});
  Pull(10, 0);
  Pull(10.5, 1);
  All(12, {.worker = 1, .value = 3});
  EXPECT_EQ(MaxSeconds(1), 1.5);
  EXPECT_EQ(Gaps(1), 0) << "the center has not moved";
  All(14, {.worker = 0, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 4);
  EXPECT_EQ(Gaps(0), 3) << "from 0 to -3, before its own step";
  All(14.25, {.worker = 0, .sequence = 2, .version = 2, .value = 1});
  EXPECT_EQ(Gaps(0), 3) << "it was sent what it had made itself";
  EXPECT_EQ(MaxSeconds(0), 4);
  EXPECT_EQ(shard_->Statistics(0).gap_count(), 2u);
}

TEST_F(LagTest, PushThatWasComputedWithNothingThisShardHasSentHasNone) {
  Make(GradientJob(false), {0});
  All(1, {.worker = 0, .value = 1});
  EXPECT_EQ(shard_->Statistics(0).applied(), 1u);
  EXPECT_EQ(shard_->Statistics(0).staleness_us_size(), 0);
  EXPECT_EQ(shard_->Statistics(0).gap_count(), 0u);
}

// Weights that are pulled by themselves, after two pushes.
TEST_F(LagTest, PushesBetweenPullsAreAsOldAsThePull) {
  Make(GradientJob(false), {0});
  Pull(1, 0);
  All(2, {.worker = 0, .operation = v1::Block::PUSH, .value = 1});
  All(5, {.worker = 0, .operation = v1::Block::PUSH, .sequence = 2, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 4);
  EXPECT_EQ(Gaps(0), 1) << "its own first step";
}

TEST_F(LagTest, SynchronousPushIsAppliedWhenTheLastOfTheGroupIsIn) {
  Make(GradientJob(true), {0, 1});
  Pull(1, 0);
  Pull(1, 1);
  All(2, {.worker = 0, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 0);
  All(7, {.worker = 1, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 6);
  EXPECT_EQ(MaxSeconds(1), 6);
  All(8, {.worker = 0, .sequence = 2, .version = 1, .value = 1});
  shard_->SetTime(28);
  shard_->SetRosters({MakeRoster(0, {0})});
  EXPECT_EQ(MaxSeconds(0), 21) << "the other was given up";
}

// A push is answered at once and applied when two later ones have arrived. It was not computed with the
// weights of the answers in between.
TEST_F(LagTest, DelayedPushIsAsOldAsWhatItWasComputedWith) {
  Make(GradientJobWith("consistency { asynchronous { emulated_delay: 2 } }"), {0});
  Pull(1, 0);
  for (uint64_t i = 0; i < 2; ++i) All(2.0 + i, {.worker = 0, .sequence = i + 1, .value = 4});
  EXPECT_EQ(shard_->Statistics(0).waiting(), 2u);
  All(4, {.worker = 0, .sequence = 3, .value = 4});
  EXPECT_EQ(MaxSeconds(0), 3) << "push 1, of the weights of second 1";
  EXPECT_EQ(Gaps(0), 0);
  All(5, {.worker = 0, .sequence = 4, .version = 1, .value = 4});
  EXPECT_EQ(Gaps(0), 4) << "push 2, computed before push 1 was applied";
  EXPECT_EQ(shard_->Statistics(0).waiting(), 2u);
}

TEST_F(LagTest, BoundedWorkerIsSentItsWeightsWhenItMayGoOn) {
  Make(GradientJobWith("consistency { bounded_staleness { bound: 0 } }"), {0, 1});
  Pull(1, 0);
  Pull(1, 1);
  All(2, {.worker = 0, .value = 1});
  All(9, {.worker = 1, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 1);
  All(10, {.worker = 0, .sequence = 2, .version = 2, .value = 1});
  EXPECT_EQ(MaxSeconds(0), 1) << "sent at 9";
  EXPECT_EQ(Gaps(0), 0);
}

TEST_F(LagTest, ExchangeIsAsOldAsTheOneBefore) {
  Make(ElasticJob(false, 0.5f), {0, 1});
  Pull(1, 0);
  Pull(1, 1);
  All(2, {.worker = 0, .operation = v1::Block::EXCHANGE, .value = 8});
  All(3, {.worker = 1, .operation = v1::Block::EXCHANGE, .value = 0});
  EXPECT_EQ(Gaps(1), 4);
  All(7, {.worker = 0, .operation = v1::Block::EXCHANGE, .sequence = 2, .version = 1, .value = 4});
  EXPECT_EQ(MaxSeconds(0), 5);
  EXPECT_EQ(Gaps(0), 2) << "from 4, with its own exchange, to 2";
}

// The sample is of the center, whatever the weights are on the wire.
TEST_F(LagTest, GapIsMeasuredBehindACodec) {
  v1::Job job = GradientJob(false);
  job.mutable_compression()->set_pull(v1::Compression::BFLOAT16);
  Make(job, {0, 1});
  Pull(1, 0);
  Pull(1, 1);
  All(2, {.worker = 1, .value = 3});
  All(3, {.worker = 0, .value = 1});
  EXPECT_EQ(Gaps(0), 3);
}

}  // namespace
}  // namespace catchment
