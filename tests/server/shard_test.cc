#include "server/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/server/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;
using testing::FloatEq;
using testing::HasSubstr;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

std::vector<std::string> Names(const std::vector<Reply>& replies) {
  std::vector<std::string> names;
  for (const Reply& reply : replies) names.push_back(reply.to);
  return names;
}

// ----------------------------------------------------------------------------------------------- synchronous

TEST(SynchronousShardTest, RoundWaitsForAllMembersAndWeighsThemBySamples) {
  ShardHarness shard(GradientJob(true), 16, 16, {0, 1, 2});
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 3, .samples = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .samples = 3}).ok());
  EXPECT_TRUE(shard.Take().empty());
  EXPECT_EQ(shard.shard().version(), 0u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 100, .samples = 0}).ok());

  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 1", "worker 2"}));
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.fate, v1::Block::APPLIED);
    EXPECT_EQ(reply.header.version, 1u);
    EXPECT_EQ(reply.header.staleness, 0u);
    EXPECT_THAT(reply.payload, Each(-1.5f)) << "0 - (3 * 1 + 1 * 3 + 0 * 100) / 4";
  }
  EXPECT_EQ(shard.shard().version(), 1u);
  EXPECT_EQ(shard.shard().Report().samples(), 4u);
}

// In worker order a third of 1e8 + 1 - 1e8 loses the 1; in another order it does not.
TEST(SynchronousShardTest, SumIsTakenInWorkerOrderWhateverComesFirst) {
  const float gradients[] = {1e8f, 1, -1e8f};
  std::vector<uint32_t> order = {0, 1, 2};
  do {
    ShardHarness shard(GradientJob(true), 16, 16, {0, 1, 2});
    for (uint32_t worker : order) {
      ASSERT_TRUE(shard.Handle({.worker = worker, .value = gradients[worker]}).ok());
    }
    EXPECT_THAT(shard.Take().at(0).payload, Each(0.0f)) << order[0] << order[1] << order[2];
  } while (std::next_permutation(order.begin(), order.end()));
}

TEST(SynchronousShardTest, RoundWithoutAnySamplesMovesTheVersionAndNothingElse) {
  v1::Job job = GradientJob(true);
  job.mutable_optimizer()->set_momentum(0.5f);
  ShardHarness shard(job, 16, 16, {0, 1});
  for (uint32_t worker : {0, 1}) ASSERT_TRUE(shard.Handle({.worker = worker, .value = 1}).ok());
  for (uint32_t worker : {0, 1}) {
    ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = 2, .version = 1, .value = 9, .samples = 0}).ok());
  }
  EXPECT_EQ(shard.shard().version(), 2u);
  EXPECT_EQ(shard.shard().Snapshot().state.blocks(0).optimizer_steps(), 1u);
  EXPECT_THAT(shard.Take().back().payload, Each(-1.0f)) << "momentum must not coast on";
}

TEST(SynchronousShardTest, BlocksHaveRoundsOfTheirOwn) {
  ShardHarness shard(GradientJob(true), 40, 16, {0, 1});
  ASSERT_EQ(shard.shard().num_blocks(), 3);
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 2}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 3, .block = 0}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 3, .block = 2}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].header.block, 2u);
  EXPECT_EQ(replies[0].payload, std::vector<float>(8, -2.0f)) << "the last block is shorter";
  EXPECT_EQ(shard.shard().version(), 0u) << "the mean over blocks, rounded down";
}

TEST(SynchronousShardTest, ContributionToAnUpdateThatWasMadeIsLate) {
  ShardHarness shard(GradientJob(true), 16, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  shard.SetRosters({MakeRoster(0, {0, 1})});
  shard.Take();
  const std::vector<float> before = shard.shard().Weights();
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 5}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].header.fate, v1::Block::LATE);
  EXPECT_EQ(replies[0].header.version, 1u);
  EXPECT_EQ(replies[0].payload, before);
  EXPECT_EQ(shard.shard().Weights(), before);
  EXPECT_EQ(shard.Statistics(1).late(), 1u);
  EXPECT_EQ(shard.Statistics(1).applied(), 0u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 2, .version = 1}).ok()) << "it goes on with its next push";
}

TEST(SynchronousShardTest, PushIsAnsweredWithoutWeightsAndPushPullWithThem) {
  ShardHarness shard(GradientJob(true), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .value = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::PUSH_PULL, .value = 1}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_TRUE(replies[0].payload.empty());
  EXPECT_EQ(replies[0].header.operation, v1::Block::PUSH);
  EXPECT_EQ(replies[1].payload, std::vector<float>(16, -1.0f));
}

TEST(SynchronousShardTest, ElasticMembersExchangeAgainstOneCenter) {
  ShardHarness shard(ElasticJob(true, 0.25f), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::EXCHANGE, .value = 8}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_THAT(replies[0].payload, Each(1.0f)) << "0.25 * (4 - 0)";
  EXPECT_THAT(replies[1].payload, Each(2.0f)) << "0.25 * (8 - 0)";
  EXPECT_THAT(shard.shard().Weights(), Each(3.0f));
}

// ---------------------------------------------------------------------------------------------- asynchronous

TEST(AsynchronousShardTest, LoneWorkerIsNeverStale) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  for (uint64_t i = 0; i < 5; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = i + 1, .version = i, .value = 1}).ok());
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(replies.size(), 1u) << "applied at once";
    EXPECT_EQ(replies[0].header.staleness, 0u);
    EXPECT_EQ(replies[0].header.version, i + 1);
    EXPECT_THAT(replies[0].payload, Each(-1.0f - static_cast<float>(i)));
  }
  const v1::WorkerStatistics statistics = shard.Statistics(0);
  EXPECT_EQ(statistics.applied(), 5u);
  ASSERT_EQ(statistics.staleness_values_size(), 1);
  EXPECT_EQ(statistics.staleness_values(0), 0u);
  EXPECT_EQ(statistics.staleness_counts(0), 5u);
}

TEST(AsynchronousShardTest, StalenessIsTheUpdatesSinceTheWorkersPull) {
  ShardHarness shard(GradientJob(false), 16, 16, {0, 1});
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = i + 1, .version = i}).ok());
  }
  shard.Take();
  ASSERT_TRUE(shard.Handle({.worker = 0, .version = 0}).ok());
  EXPECT_EQ(shard.Take().at(0).header.staleness, 3u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 4, .version = 3}).ok());
  EXPECT_EQ(shard.Take().at(0).header.staleness, 1u);
  EXPECT_EQ(shard.Statistics(0).staleness_values(0), 3u);
  EXPECT_EQ(shard.Statistics(1).staleness_values(1), 1u);
}

TEST(AsynchronousShardTest, ContributionIsAppliedInFullWhateverItsSamples) {
  ShardHarness shard(GradientJob(false), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 2, .samples = 7}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-2.0f));
}

TEST(AsynchronousShardTest, ExchangeMovesTheCenterByWhatItAnswers) {
  ShardHarness shard(ElasticJob(false, 0.5f), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_THAT(replies[0].payload, Each(2.0f));
  EXPECT_THAT(replies[1].payload, Each(1.0f)) << "the center had moved to 2";
  EXPECT_THAT(shard.shard().Weights(), Each(3.0f));
}

// ---------------------------------------------------------------------------------------------------- pulls

TEST(ShardTest, PullIsAnsweredAtOnceByAVersionThatIsThere) {
  ShardHarness shard(GradientJob(false), 20, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 1}).ok());
  shard.Take();
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PULL, .sequence = 77, .block = 1}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].header.sequence, 77u);
  EXPECT_EQ(replies[0].header.version, 1u);
  EXPECT_EQ(replies[0].header.fate, v1::Block::APPLIED);
  EXPECT_EQ(replies[0].payload, std::vector<float>(4, -1.0f));
}

TEST(ShardTest, PullOfALaterVersionWaitsForIt) {
  for (bool synchronous : {false, true}) {
    ShardHarness shard(GradientJob(synchronous), 16, 16, {});
    shard.SetRosters({MakeRoster(0, {0}), MakeRoster(9, {0, 1, 2})});
    ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::PULL, .version = 2}).ok());
    ASSERT_TRUE(shard.Handle({.worker = 2, .operation = v1::Block::PULL, .version = 1}).ok());
    EXPECT_TRUE(shard.Take().empty());
    ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .value = 1}).ok());
    EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0", "worker 2"}));
    ASSERT_TRUE(
        shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .sequence = 2, .version = 1, .value = 1}).ok());
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 1"}));
    EXPECT_EQ(replies[1].header.version, 2u);
    EXPECT_THAT(replies[1].payload, Each(-2.0f));
  }
}

TEST(ShardTest, WorkersPullThatComesAgainTakesThePlaceOfTheFirst) {
  ShardHarness shard(GradientJob(false), 16, 16, {0, 1});
  for (int i = 0; i < 100; ++i) {
    const std::string to = "connection " + std::to_string(i);
    ASSERT_TRUE(
        shard.Handle({.worker = 1, .operation = v1::Block::PULL, .version = 1, .to = to.c_str()}).ok());
  }
  ASSERT_TRUE(shard.Handle({.worker = 0}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0", "connection 99"}));
}

// -------------------------------------------------------------------------------------------- exactly once

TEST(ShardTest, ResentBlockIsAcknowledgedAndNotAppliedAgain) {
  ShardHarness shard(GradientJob(false), 32, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 1}).ok());
  shard.Take();
  // While the push is under way, and when it is complete.
  for (const char* when : {"partial", "complete"}) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 1}).ok());
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(replies.size(), 1u) << when;
    EXPECT_EQ(replies[0].header.fate, v1::Block::DUPLICATE) << when;
    EXPECT_EQ(replies[0].header.version, 1u) << when;
    EXPECT_EQ(replies[0].payload, std::vector<float>(16, -1.0f)) << when;
    ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 0}).ok());
    shard.Take();
  }
  EXPECT_EQ(shard.shard().Weights(), std::vector<float>(32, -1.0f));
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);
  EXPECT_EQ(shard.Statistics(0).duplicate(), 3u);
}

TEST(ShardTest, ResentPushWithoutWeightsIsAcknowledgedWithoutThem) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .value = 1}).ok());
  }
  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(replies.at(1).header.fate, v1::Block::DUPLICATE);
  EXPECT_TRUE(replies.at(1).payload.empty());
}

TEST(ShardTest, ResentExchangeIsAnsweredAndLeavesTheCenter) {
  ShardHarness shard(ElasticJob(false, 0.5f), 16, 16, {0});
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  }
  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(replies.at(1).header.fate, v1::Block::DUPLICATE);
  EXPECT_THAT(replies.at(1).payload, Each(1.0f)) << "0.5 * (4 - 2)";
  EXPECT_THAT(shard.shard().Weights(), Each(2.0f));
}

TEST(ShardTest, ResentContributionThatStillWaitsCountsOnceAndIsAnsweredOverTheNewConnection) {
  ShardHarness shard(GradientJob(true), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .to = "cut connection"}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .to = "new connection"}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 3}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"new connection", "worker 1"}));
  EXPECT_THAT(shard.shard().Weights(), Each(-2.0f));
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);
}

TEST(ShardTest, NewIncarnationTakesThePlaceOfTheFormerOnesContribution) {
  ShardHarness shard(GradientJob(true), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 100, .to = "former"}).ok());
  shard.SetRosters({RosterOfLives(0, {{0, 50}, {1, IncarnationOf(1)}})});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .incarnation = 50, .to = "new"}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 3}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"new", "worker 1"}));
  EXPECT_THAT(shard.shard().Weights(), Each(-2.0f));
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .incarnation = 50}).ok());
}

// --------------------------------------------------------------------------------------------- membership

// Three workers, two blocks, one of which leaves for ever: whichever of the six contributions had come by then,
// the two others go on, and what the third had sent counts.
TEST(SynchronousShardTest, MemberThatLeavesAtAnyPointReleasesTheOthers) {
  const float gradients[] = {1, 2, 4};
  for (int mask = 0; mask < 64; ++mask) {
    ShardHarness shard(GradientJob(true), 32, 16, {0, 1, 2});
    const auto has_come = [mask](uint32_t worker, uint32_t block) { return mask >> (2 * worker + block) & 1; };
    const auto send = [&](uint32_t worker, uint32_t block) {
      ASSERT_TRUE(shard.Handle({.worker = worker, .value = gradients[worker], .block = block}).ok()) << mask;
    };
    for (uint32_t worker : {0, 1, 2}) {
      for (uint32_t block : {0, 1}) {
        if (has_come(worker, block)) send(worker, block);
      }
    }
    shard.SetRosters({MakeRoster(0, {0, 1})});
    for (uint32_t worker : {0, 1}) {
      for (uint32_t block : {0, 1}) {
        if (!has_come(worker, block)) send(worker, block);
      }
    }
    int answers = 0;
    for (const Reply& reply : shard.Take()) answers += reply.to != "worker 2" && reply.header.version == 1;
    EXPECT_EQ(answers, 4) << mask;
    const v1::ShardState state = shard.shard().Snapshot().state;
    const std::vector<float> weights = shard.shard().Weights();
    for (uint32_t block : {0, 1}) {
      EXPECT_EQ(state.blocks(block).version(), 1u) << mask;
      const float mean = has_come(2, block) ? 7.0f / 3 : 1.5f;
      EXPECT_NEAR(weights[16 * block], -mean, 1e-6) << mask << " block " << block;
    }
  }
}

TEST(SynchronousShardTest, RoundsWhoseMembersAllVanishedAreSkippedToTheNextRoster) {
  ShardHarness shard(GradientJob(true), 32, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .block = 0}).ok());
  shard.SetRosters({MakeRoster(0, {0}), MakeRoster(5, {1})});
  for (uint32_t block : {0, 1}) {
    ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::PULL, .version = 5, .block = block}).ok());
  }
  shard.Take();
  EXPECT_EQ(shard.shard().Snapshot().state.blocks(0).version(), 1u);

  const std::vector<uint32_t> nobody;
  shard.SetRosters({MakeRoster(0, nobody), MakeRoster(5, {1})});
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 1", "worker 1"}));
  EXPECT_EQ(replies[0].header.version, 5u);
  EXPECT_EQ(replies[0].payload, std::vector<float>(16, -1.0f)) << "what was in counts";
  EXPECT_EQ(replies[1].payload, std::vector<float>(16, 0.0f));
  EXPECT_EQ(shard.shard().version(), 5u);
  for (uint32_t block : {0, 1}) {
    ASSERT_TRUE(shard.Handle({.worker = 1, .version = 5, .value = 1, .block = block}).ok());
  }
  EXPECT_EQ(shard.Take().size(), 2u);
  EXPECT_EQ(shard.shard().version(), 6u);
}

TEST(SynchronousShardTest, NothingIsSkippedWhileNoLaterRosterSaysThatTrainingGoesOn) {
  ShardHarness shard(GradientJob(true), 16, 16, {0});
  const std::vector<uint32_t> nobody;
  shard.SetRosters({MakeRoster(0, nobody)});
  EXPECT_EQ(shard.shard().version(), 0u);
  shard.SetRosters({MakeRoster(0, nobody), MakeRoster(3, {1})});
  EXPECT_EQ(shard.shard().version(), 3u);
}

TEST(SynchronousShardTest, NewcomerIsWaitedForFromItsRosterOn) {
  ShardHarness shard(GradientJob(true), 16, 16, {0});
  shard.SetRosters({MakeRoster(0, {0}), MakeRoster(2, {0, 1})});
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::PULL, .version = 2}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 1}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0", "worker 0", "worker 1"}));
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 3, .version = 2, .value = 1}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .version = 2, .value = 3}).ok());
  EXPECT_THAT(shard.Take().at(1).payload, Each(-4.0f));
}

TEST(ShardTest, CommandOfAnOlderGenerationIsIgnored) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  v1::ShardCommand older;
  older.set_generation(1);
  *older.add_rosters() = MakeRoster(0, {7});
  std::vector<Answer> answers;
  shard.shard().SetRosters(older, &answers);
  EXPECT_FALSE(shard.shard().IsMember(7, IncarnationOf(7)));
  EXPECT_TRUE(shard.shard().IsMember(0, IncarnationOf(0)));
}

// ----------------------------------------------------------------------------------------------- refusals

struct Refusal {
  const char* what;
  Send send;
  absl::StatusCode code;
  const char* message;
};

TEST(ShardTest, WhatBreaksTheProtocolIsRefusedByNameAndChangesNothing) {
  const Refusal refusals[] = {
      {"block", {.worker = 0, .block = 2}, absl::StatusCode::kInvalidArgument,
       "block 2 of shard 0, which has 2 blocks"},
      {"operation", {.worker = 0, .operation = v1::Block::EXCHANGE}, absl::StatusCode::kInvalidArgument,
       "operation EXCHANGE does not belong to this job's algorithm"},
      {"no operation", {.worker = 0, .operation = v1::Block::OPERATION_UNSET}, absl::StatusCode::kInvalidArgument,
       "operation OPERATION_UNSET does not belong to this job's algorithm"},
      {"unknown operation", {.worker = 0, .operation = static_cast<v1::Block::Operation>(99)},
       absl::StatusCode::kInvalidArgument, "operation 99 does not belong to this job's algorithm"},
      {"sequence gap", {.worker = 0, .sequence = 3}, absl::StatusCode::kInvalidArgument,
       "push 3 came before push 1 was complete"},
      {"sequence 0", {.worker = 0, .sequence = 0}, absl::StatusCode::kInvalidArgument,
       "push 0: sequence numbers begin at 1"},
      {"future version", {.worker = 0, .version = 1, .block = 1}, absl::StatusCode::kInvalidArgument,
       "a contribution computed at version 1 of block 1, which is at 0"},
      {"worker", {.worker = 7}, absl::StatusCode::kFailedPrecondition,
       "worker 7, incarnation 17, is no member of the job (any more); register again"},
      {"incarnation", {.worker = 0, .incarnation = 9}, absl::StatusCode::kFailedPrecondition,
       "worker 0, incarnation 9, is no member of the job (any more); register again"},
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
  EXPECT_EQ(message({.worker = 0}, 15), "block 0 of shard 0 takes 16 values, and 15 came");
  EXPECT_EQ(message({.worker = 0}, 17), "block 0 of shard 0 takes 16 values, and 17 came");
  EXPECT_EQ(message({.worker = 0, .block = 2}, 16), "block 2 of shard 0 takes 8 values, and 16 came");
  EXPECT_EQ(message({.worker = 0}, 0), "block 0 of shard 0 takes 16 values, and 0 came");
  EXPECT_EQ(message({.worker = 0, .operation = v1::Block::PULL}, 16),
            "block 0 of shard 0 takes 0 values, and 16 came");
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
              absl::StatusCode::kFailedPrecondition);
  }
}

// --------------------------------------------------------------------------------------------- NaN, infinity

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

  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 5, .version = 1, .value = FLT_MAX}).ok());
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

// ------------------------------------------------------------------------------------ schedule, checkpoints

TEST(ShardTest, LearningRateFollowsTheSamplesApplied) {
  v1::Job job = GradientJob(false, 1);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  ShardHarness shard(job, 16, 16, {0});
  shard.SetRosters({MakeRoster(0, {0})}, 100);
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .samples = 50}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-1.0f));
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 1, .samples = 50}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(FloatEq(-1.5f))) << "half the budget is spent: half the rate";
}

TEST(SynchronousShardTest, CheckpointsAreTakenExactlyAtMultiplesWithAllBlocksThere) {
  v1::Job job = GradientJob(true);
  job.mutable_checkpoint()->set_every_updates(3);
  ShardHarness shard(job, 40, 16, {0, 1});
  for (uint64_t round = 0; round < 10; ++round) {
    for (uint32_t worker : {0, 1}) {
      // Not in block order.
      for (uint32_t block : {2, 0, 1}) {
        ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = round + 1, .version = round, .value = 1,
                                  .block = block}).ok());
      }
    }
  }
  ASSERT_EQ(shard.snapshots().size(), 3u);
  for (uint64_t i = 0; i < 3; ++i) {
    const ShardSnapshot& snapshot = shard.snapshots()[i];
    const uint64_t version = 3 * (i + 1);
    EXPECT_EQ(snapshot.state.checkpoint(), version);
    ASSERT_EQ(snapshot.state.blocks_size(), 3);
    for (const v1::BlockState& block : snapshot.state.blocks()) EXPECT_EQ(block.version(), version);
    EXPECT_EQ(snapshot.weights, std::vector<float>(40, -static_cast<float>(version)));
    for (const v1::Watermark& watermark : snapshot.state.watermarks()) {
      EXPECT_EQ(watermark.sequence(), version);
      EXPECT_TRUE(watermark.partial().empty());
    }
    EXPECT_EQ(snapshot.state.samples(), 2 * version);
  }
}

TEST(ShardTest, CheckpointByCommandIsMadeOnce) {
  ShardHarness shard(GradientJob(false), 16, 16, {0});
  shard.shard().Checkpoint(4);
  shard.shard().Checkpoint(4);
  shard.shard().Checkpoint(3);
  ASSERT_EQ(shard.snapshots().size(), 1u);
  EXPECT_EQ(shard.snapshots()[0].state.checkpoint(), 4u);
  shard.shard().Checkpoint(5);
  EXPECT_EQ(shard.snapshots().size(), 2u);
}

TEST(ShardTest, NoneAreTakenWithoutAnInterval) {
  v1::Job job = GradientJob(false);
  job.mutable_checkpoint()->set_every_updates(0);
  ShardHarness shard(job, 16, 16, {0});
  for (uint64_t i = 0; i < 20; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = i + 1, .version = i}).ok());
  }
  EXPECT_TRUE(shard.snapshots().empty());
}

class RestoreTest : public testing::TestWithParam<v1::Optimizer::Kind> {};

TEST_P(RestoreTest, ShardGoesOnFromASnapshotBitForBit) {
  v1::Job job = GradientJob(false, 0.05f);
  job.mutable_optimizer()->set_kind(GetParam());
  if (GetParam() == v1::Optimizer::SGD) job.mutable_optimizer()->set_momentum(0.9f);
  job.mutable_optimizer()->set_beta1(0.9f);
  job.mutable_optimizer()->set_beta2(0.999f);
  job.mutable_optimizer()->set_epsilon(1e-8f);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::COSINE);
  job.mutable_optimizer()->mutable_schedule()->set_warmup(0.3f);
  job.mutable_checkpoint()->set_every_updates(7);
  const auto push = [](ShardHarness& shard, uint64_t sequence, uint64_t version) {
    for (uint32_t block : {0, 1, 2}) {
      std::vector<float> gradient(shard.shard().block_range(block).size());
      for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = std::sin(0.7f * version + 0.3f * i + block);
      ASSERT_TRUE(shard.HandleValues({.worker = 0, .sequence = sequence, .version = version, .block = block,
                                      .samples = 5}, gradient).ok());
    }
  };
  ShardHarness left_alone(job, 40, 16, {0});
  left_alone.SetRosters({MakeRoster(0, {0})}, 100);
  for (uint64_t i = 0; i < 20; ++i) push(left_alone, i + 1, i);

  ASSERT_GE(left_alone.snapshots().size(), 1u);
  const ShardSnapshot& snapshot = left_alone.snapshots()[0];
  ASSERT_EQ(snapshot.state.checkpoint(), 7u);
  Shard::Contents contents{snapshot.weights, snapshot.states,
                           {snapshot.state.blocks().begin(), snapshot.state.blocks().end()}, 7};
  ShardHarness restored(job, 40, 16, {}, std::move(contents));
  restored.SetRosters({MakeRoster(0, {0})}, 100);
  for (uint64_t i = 7; i < 20; ++i) push(restored, i - 6, i);

  EXPECT_EQ(restored.shard().Weights(), left_alone.shard().Weights());
  EXPECT_EQ(restored.shard().Snapshot().states, left_alone.shard().Snapshot().states);
  EXPECT_EQ(restored.shard().version(), 20u);
  EXPECT_EQ(restored.shard().Report().samples(), 100u);
  ASSERT_EQ(restored.snapshots().size(), 1u) << "7 was there already";
  EXPECT_EQ(restored.snapshots()[0].state.checkpoint(), 14u);
  EXPECT_EQ(restored.snapshots()[0].weights, left_alone.snapshots()[1].weights);
}

INSTANTIATE_TEST_SUITE_P(Optimizers, RestoreTest,
                         testing::Values(v1::Optimizer::SGD, v1::Optimizer::ADAGRAD, v1::Optimizer::ADAM),
                         [](const auto& info) { return v1::Optimizer::Kind_Name(info.param); });

TEST(ShardTest, ReportCountsWhatWasMovedAndApplied) {
  ShardHarness shard(GradientJob(false), 32, 16, {0, 1});
  for (uint32_t block : {0, 1}) ASSERT_TRUE(shard.Handle({.worker = 1, .block = block, .samples = 3}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PULL}).ok());
  const v1::ShardReport report = shard.shard().Report();
  EXPECT_EQ(report.version(), 1u);
  EXPECT_EQ(report.generation(), 1u);
  EXPECT_EQ(report.samples(), 3u);
  EXPECT_EQ(report.bytes_pushed(), 128u);
  EXPECT_EQ(report.bytes_pulled(), 128u + 64u);
  ASSERT_EQ(report.workers_size(), 2);
  EXPECT_EQ(report.workers(1).applied(), 1u);
}

}  // namespace
}  // namespace catchment
