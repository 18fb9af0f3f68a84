// Requests that a shard refuses with a reason, and contributions with a NaN or an infinity.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <limits>
#include <string>
#include <vector>

#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;
using testing::FloatEq;
using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Refusal {
  const char* what;
  Send send;
  absl::StatusCode code;
  const char* message;
};

TEST(ShardTest, WhatBreaksTheProtocolIsRefusedByNameAndChangesNothing) {
  const Refusal refusals[] = {
      {"block",
       {.worker = 0, .block = 2},
       absl::StatusCode::kInvalidArgument,
       "block 2 of shard 0, which has 2 blocks"},
      {"operation",
       {.worker = 0, .operation = v1::Block::EXCHANGE},
       absl::StatusCode::kInvalidArgument,
       "operation EXCHANGE does not belong to this job's algorithm"},
      {"no operation",
       {.worker = 0, .operation = v1::Block::OPERATION_UNSET},
       absl::StatusCode::kInvalidArgument,
       "operation OPERATION_UNSET does not belong to this job's algorithm"},
      {"unknown operation",
       {.worker = 0, .operation = static_cast<v1::Block::Operation>(99)},
       absl::StatusCode::kInvalidArgument,
       "operation 99 does not belong to this job's algorithm"},
      {"sequence gap",
       {.worker = 0, .sequence = 3},
       absl::StatusCode::kInvalidArgument,
       "push 3 came before push 1 was complete"},
      {"sequence 0",
       {.worker = 0, .sequence = 0},
       absl::StatusCode::kInvalidArgument,
       "push 0: sequence numbers start at 1"},
      {"future version",
       {.worker = 0, .version = 1, .block = 1},
       absl::StatusCode::kInvalidArgument,
       "a contribution computed at version 1 of block 1, which is at 0"},
      {"worker",
       {.worker = 7},
       absl::StatusCode::kAborted,
       "worker 7, incarnation 17, is not, or no longer, a member of the job; register again"},
      {"incarnation",
       {.worker = 0, .incarnation = 9},
       absl::StatusCode::kAborted,
       "worker 0, incarnation 9, is not, or no longer, a member of the job; register again"},
  };
  for (bool synchronous : {false, true}) {
    ShardHarness shard(GradientJob(synchronous), 32, 16, {0, 1});
    const std::string before = shard.State();
    for (const Refusal& refusal : refusals) {
      const absl::Status status = shard.Handle(refusal.send);
      EXPECT_EQ(status.code(), refusal.code) << refusal.what;
      EXPECT_EQ(std::string(status.message()), refusal.message) << refusal.what;
    }
    EXPECT_EQ(shard.State(), before);
    EXPECT_TRUE(shard.Take().empty());
  }
}

TEST(ShardTest, PayloadOfTheWrongSizeIsRefused) {
  ShardHarness shard(GradientJob(false), 40, 16, {0});
  const std::string before = shard.State();
  const auto message = [&](const Send& send, int64_t values) {
    return std::string(shard.HandleValues(send, std::vector<float>(values, 1.0f)).message());
  };
  EXPECT_EQ(message({.worker = 0}, 15),
            "block 0 of shard 0: a FLOAT32 payload of 16 values has 64 bytes, but received 60");
  EXPECT_EQ(message({.worker = 0}, 17),
            "block 0 of shard 0: a FLOAT32 payload of 16 values has 64 bytes, but received 68");
  EXPECT_EQ(message({.worker = 0, .block = 2}, 16),
            "block 2 of shard 0: a FLOAT32 payload of 8 values has 32 bytes, but received 64");
  EXPECT_EQ(message({.worker = 0}, 0), "block 0 of shard 0 expects 16 values but got 0");
  EXPECT_EQ(message({.worker = 0, .operation = v1::Block::PULL}, 16),
            "block 0 of shard 0 expects 0 values but got 16");
  EXPECT_EQ(shard.State(), before);
}

TEST(ShardTest, GradientIsRefusedByAnElasticJob) {
  ShardHarness shard(ElasticJob(false, 0.5f), 16, 16, {0});
  for (v1::Block::Operation operation : {v1::Block::PUSH, v1::Block::PUSH_PULL}) {
    EXPECT_THAT(std::string(shard.Handle({.worker = 0, .operation = operation}).message()),
                HasSubstr("does not belong to this job's algorithm"));
  }
}

TEST(ShardTest, WorkerThatHasLeftIsRefused) {
  ShardHarness shard(GradientJob(false), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 1}).ok());
  shard.SetRosters({MakeRoster(0, {0})});
  for (v1::Block::Operation operation : {v1::Block::PUSH_PULL, v1::Block::PULL}) {
    EXPECT_EQ(shard.Handle({.worker = 1, .operation = operation, .sequence = 2, .version = 1}).code(),
              absl::StatusCode::kAborted);
  }
}

// ---------------------------------------------------------------------------------------------- statements

TEST(ShardTest, ContributionHasAtMostTheSamplesOfItsSteps) {
  for (const bool synchronous : {false, true}) {
    v1::Job job = GradientJob(synchronous);
    job.set_batch_size(8);
    job.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_push_period(3);
    ShardHarness shard(job, 16, 16, {0});
    // The first of an incarnation may hold steps of an earlier one.
    const std::string before = shard.State();
    EXPECT_EQ(shard.Handle({.worker = 0, .samples = 49}).message(),
              "push 1 of worker 0 claims 49 samples in block 0; in its steps there are at most 48");
    EXPECT_EQ(shard.Handle({.worker = 0, .samples = UINT32_MAX}).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(shard.State(), before);
    EXPECT_TRUE(shard.Handle({.worker = 0, .samples = 48}).ok());
    // A harness's push has one step.
    EXPECT_EQ(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .samples = 9}).code(),
              absl::StatusCode::kInvalidArgument);
    EXPECT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .samples = 8}).ok());
    EXPECT_EQ(shard.shard().Report().samples(), 56u);
  }
}

TEST(ShardTest, ScheduleCountsNoMoreSamplesThanTheMasterHasAssigned) {
  v1::Job job = GradientJob(false, 1);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::POLYNOMIAL);
  job.mutable_optimizer()->mutable_schedule()->set_power(1);
  ShardHarness shard(job, 16, 16, {0, 1});
  shard.SetRosters({MakeRoster(0, {0, 1})}, /*total_samples=*/100);
  ASSERT_TRUE(shard.Handle({.worker = 1, .samples = 99}).ok());
  EXPECT_NEAR(shard.shard().Report().learning_rate(), 0.01, 1e-6);
  shard.SetMostSamples(25);
  EXPECT_EQ(shard.shard().Report().learning_rate(), 0.75);
  ASSERT_TRUE(shard.Handle({.worker = 0, .version = 1, .value = 2}).ok());
  EXPECT_EQ(shard.shard().Weights()[0], -1.5f);
}

// A member that sets a field of its push to an extreme has made an ordinary push, or none, for the others:
// their learning rate and momentum, which follow from the samples and the staleness of all, are the same.
TEST(ShardTest, NoFieldOfAPushChangesTheUpdatesOfOthers) {
  v1::Job job = GradientJobWith("compensation { open_loop_momentum { averaging: 0.1 } }", 0.1f);
  job.set_batch_size(4);
  job.mutable_optimizer()->set_momentum(0.5f);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::POLYNOMIAL);
  job.mutable_optimizer()->mutable_schedule()->set_power(1);
  const auto train = [&](const std::optional<Send>& push) {
    ShardHarness shard(job, 16, 16, {0, 1});
    shard.SetRosters({MakeRoster(0, {0, 1})}, /*total_samples=*/200);
    uint64_t sequence = 0;
    const auto step = [&] {
      Send send{.worker = 0, .value = 1, .samples = 4};
      send.sequence = ++sequence;
      send.version = shard.shard().version();
      EXPECT_TRUE(shard.Handle(send).ok());
    };
    for (int i = 0; i < 20; ++i) step();
    EXPECT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::PULL}).ok());
    if (push) (void)shard.Handle(*push);
    for (int i = 0; i < 5; ++i) step();
    return shard.shard().Weights();
  };
  const Send ordinary{.worker = 1, .version = 20, .samples = 4};
  const std::vector<float> with = train(ordinary), without = train(std::nullopt);
  ASSERT_NE(with, without);
  std::vector<Send> extremes;
  for (const uint64_t value : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 40, UINT64_MAX}) {
    for (uint64_t Send::*field : {&Send::version, &Send::sequence, &Send::connection}) {
      extremes.push_back(ordinary);
      extremes.back().*field = value;
    }
    for (uint32_t Send::*field : {&Send::samples, &Send::block}) {
      extremes.push_back(ordinary);
      extremes.back().*field = static_cast<uint32_t>(value);
    }
  }
  for (const Send& extreme : extremes) {
    if (extreme.samples == 1 || extreme.samples == 0) continue;  // of an ordinary last push
    const std::vector<float> weights = train(extreme);
    EXPECT_TRUE(weights == with || weights == without)
        << "version " << extreme.version << ", sequence " << extreme.sequence << ", samples "
        << extreme.samples << ", block " << extreme.block;
  }
}

// --------------------------------------------------------------------------------------------- NaN, infinity

TEST(AsynchronousShardTest, FiniteContributionThatWouldMakeTheOptimizersStateInfiniteIsRefused) {
  for (const float value : {3e38f, -3e38f, 0x1p63f}) {
    ShardHarness shard(GradientJob(false, 10), 16, 16, {0, 1});
    std::vector<float> gradient(16, 1.0f);
    gradient[3] = value;
    ASSERT_TRUE(shard.HandleValues({.worker = 0}, gradient).ok());
    EXPECT_EQ(shard.Take()[0].header.fate, v1::Block::NON_FINITE);
    EXPECT_EQ(shard.shard().Weights()[3], 0);
    gradient[3] = 0x1p62f;
    ASSERT_TRUE(shard.HandleValues({.worker = 0, .sequence = 2}, gradient).ok());
    EXPECT_EQ(shard.Take()[0].header.fate, v1::Block::APPLIED);
    EXPECT_EQ(shard.shard().Report().non_finite_version(), 0u);
  }
}

TEST(AsynchronousShardTest, ContributionThatIsNotFiniteIsRefusedCountedAndChangesNothing) {
  v1::Job job = GradientJob(false);
  job.mutable_optimizer()->set_momentum(0.5f);
  ShardHarness shard(job, 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  shard.Take();
  const ShardSnapshot before = shard.shard().Snapshot();
  uint64_t sequence = 1;
  for (float value : {kNaN, kInfinity, -kInfinity}) {
    std::vector<float> gradient(16, 1.0f);
    gradient[15] = value;
    ASSERT_TRUE(shard.HandleValues({.worker = 0, .sequence = ++sequence, .version = 1}, gradient).ok());
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].header.fate, v1::Block::NON_FINITE);
    EXPECT_EQ(replies[0].header.version, 1u);
    EXPECT_EQ(replies[0].payload, before.weights) << "the worker can go on from the center";
    EXPECT_EQ(shard.Statistics(0).non_finite_in_a_row(), sequence - 1);
  }
  const ShardSnapshot after = shard.shard().Snapshot();
  EXPECT_EQ(after.weights, before.weights);
  EXPECT_EQ(after.states, before.states);
  EXPECT_EQ(after.state.blocks(0).SerializeAsString(), before.state.blocks(0).SerializeAsString());
  EXPECT_EQ(shard.Statistics(0).non_finite(), 3u);
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);

  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 5, .version = 1, .value = 0x1p62f}).ok());
  EXPECT_EQ(shard.Take().at(0).header.fate, v1::Block::APPLIED) << "large, but finite";
  EXPECT_EQ(shard.Statistics(0).non_finite_in_a_row(), 0u);
  EXPECT_EQ(shard.Statistics(0).non_finite(), 3u);
}

TEST(AsynchronousShardTest, ExchangeThatIsNotFiniteGetsNoDifference) {
  ShardHarness shard(ElasticJob(false, 0.5f), 16, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = kNaN}).ok());
  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(replies.at(0).header.fate, v1::Block::NON_FINITE);
  EXPECT_TRUE(replies.at(0).payload.empty());
  EXPECT_THAT(shard.shard().Weights(), Each(0.0f));
  EXPECT_EQ(shard.shard().version(), 0u);
}

TEST(SynchronousShardTest, RoundGoesOnWithoutTheContributionThatIsNotFinite) {
  ShardHarness shard(GradientJob(true), 16, 16, {0, 1, 2});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .samples = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = kNaN, .samples = 10}).ok());
  EXPECT_TRUE(shard.Take().empty()) << "its sender is waited for no less";
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 4, .samples = 2}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 3u);
  EXPECT_EQ(replies[0].header.fate, v1::Block::APPLIED);
  EXPECT_EQ(replies[1].header.fate, v1::Block::NON_FINITE);
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.version, 1u);
    EXPECT_THAT(reply.payload, Each(FloatEq(-3.0f))) << "(1 * 1 + 2 * 4) / 3";
  }
  EXPECT_EQ(shard.Statistics(1).non_finite(), 1u);
  EXPECT_EQ(shard.shard().Report().samples(), 3u);
}

TEST(SynchronousShardTest, RoundOfNothingButNaNsMovesTheVersionOnly) {
  for (const v1::Job& job : {GradientJob(true), ElasticJob(true, 0.5f)}) {
    const bool elastic = job.algorithm().contribution().has_elastic();
    const v1::Block::Operation operation = elastic ? v1::Block::EXCHANGE : v1::Block::PUSH_PULL;
    Shard::Contents contents;
    contents.weights.assign(16, 7.0f);
    ShardHarness shard(job, 16, 16, {0, 1}, std::move(contents));
    for (uint32_t worker : {0, 1}) {
      ASSERT_TRUE(shard.Handle({.worker = worker, .operation = operation, .value = kNaN}).ok());
    }
    EXPECT_EQ(shard.Take().size(), 2u);
    EXPECT_EQ(shard.shard().version(), 1u);
    EXPECT_THAT(shard.shard().Weights(), Each(7.0f));
  }
}

TEST(ShardTest, OneBadBlockLeavesTheOthersOfItsPushAndTheirPushIsCountedAsBad) {
  ShardHarness shard(GradientJob(false), 32, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = kNaN, .block = 0}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 1}).ok());
  const std::vector<float> weights = shard.shard().Weights();
  EXPECT_EQ(weights[0], 0.0f);
  EXPECT_EQ(weights[16], -1.0f);
  EXPECT_EQ(shard.Statistics(0).non_finite(), 1u);
  EXPECT_EQ(shard.Statistics(0).applied(), 0u);
}

}  // namespace
}  // namespace catchment
