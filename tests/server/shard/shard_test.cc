// Rounds, pulls, exactly once, membership.
#include "server/shard/shard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <string>
#include <vector>

#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;
using testing::FloatNear;

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
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 2, .version = 1}).ok())
      << "it goes on with its next push";
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
  v1::Job job = ElasticJob(true, 0.25f);
  job.set_workers(2);
  ShardHarness shard(job, 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::EXCHANGE, .value = 8}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_THAT(replies[0].payload, Each(1.0f)) << "0.25 * (4 - 0)";
  EXPECT_THAT(replies[1].payload, Each(2.0f)) << "0.25 * (8 - 0)";
  EXPECT_THAT(shard.shard().Weights(), Each(3.0f));
}

// Its answer may have been lost with the connection. With more members than planned the moving rate is lower.
TEST(SynchronousShardTest, ResentExchangeGetsTheAnswerOfTheFirst) {
  for (const uint32_t planned : {1, 2}) {
    v1::Job job = ElasticJob(true, 0.25f);
    job.set_workers(planned);
    ShardHarness shard(job, 16, 16, {0, 1});
    for (const uint32_t worker : {0, 1, 1}) {
      const float x = worker == 0 ? 4 : 8;
      ASSERT_TRUE(shard.Handle({.worker = worker, .operation = v1::Block::EXCHANGE, .value = x}).ok());
    }
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(replies.size(), 3u);
    EXPECT_EQ(replies[2].header.fate, v1::Block::DUPLICATE);
    EXPECT_EQ(replies[2].header.version, replies[1].header.version);
    EXPECT_THAT(replies[2].payload, Each(planned == 2 ? 2.0f : 1.0f)) << "of 8 - 0";
    EXPECT_EQ(replies[2].payload, replies[1].payload);
    EXPECT_THAT(shard.shard().Weights(), Each(planned == 2 ? 3.0f : 1.5f));
  }
}

// The warm-up ends half way; the factor holds before and after, and until the next one is set.
TEST(SynchronousShardTest, LearningRateIsMultipliedByThePlateausFactor) {
  v1::Job job = GradientJob(true);
  job.mutable_optimizer()->mutable_schedule()->set_decay(v1::Schedule::PLATEAU);
  job.mutable_optimizer()->mutable_schedule()->set_warmup(0.5f);
  ShardHarness shard(job, 16, 16, {0});
  float weight = 0;
  uint64_t sequence = 0;
  const auto step_moves_by = [&](float move) {
    ASSERT_TRUE(
        shard.Handle({.worker = 0, .sequence = ++sequence, .version = sequence - 1, .value = 1}).ok());
    weight -= move;
    EXPECT_THAT(shard.shard().Weights(), Each(weight)) << "step " << sequence;
  };
  shard.SetPlateauFactor(0.5);
  shard.SetRosters({MakeRoster(0, {0})}, /*total_samples=*/4);
  step_moves_by(0);
  step_moves_by(0.25f);
  step_moves_by(0.5f);
  shard.SetPlateauFactor(0.125);
  shard.SetRosters({MakeRoster(0, {0})}, 4);
  step_moves_by(0.125f);
}

TEST(SynchronousShardTest, ScheduleCyclesTheMomentum) {
  v1::Job job = GradientJob(true);
  job.mutable_optimizer()->set_momentum(0.5f);
  v1::Schedule* const schedule = job.mutable_optimizer()->mutable_schedule();
  schedule->set_decay(v1::Schedule::ONE_CYCLE);
  schedule->set_pct_start(0.5f);
  schedule->set_initial_lr_fraction(1);
  schedule->set_final_fraction(1);
  schedule->set_min_momentum(0);
  ShardHarness shard(job, 16, 16, {0});
  shard.SetRosters({MakeRoster(0, {0})}, /*total_samples=*/4);
  // Momentum is 0.5, 0.25, 0, 0.25.
  float weight = 0;
  uint64_t sequence = 0;
  for (const float move : {1.0f, 1.25f, 1.0f, 1.25f}) {
    ASSERT_TRUE(
        shard.Handle({.worker = 0, .sequence = ++sequence, .version = sequence - 1, .value = 1}).ok());
    weight -= move;
    EXPECT_THAT(shard.shard().Weights(), Each(FloatNear(weight, 1e-6f))) << "step " << sequence;
  }
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
        shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .sequence = 2, .version = 1, .value = 1})
            .ok());
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

// The worker does not know yet, if the connection broke before it was answered.
TEST(ShardTest, ResentContributionThatIsNotFiniteIsRefusedAgain) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const v1::Block::Operation operation : {v1::Block::PUSH, v1::Block::PUSH_PULL, v1::Block::EXCHANGE}) {
    const bool exchange = operation == v1::Block::EXCHANGE;
    ShardHarness shard(exchange ? ElasticJob(false, 0.5f) : GradientJob(false), 16, 16, {0});
    for (int i = 0; i < 2; ++i) {
      ASSERT_TRUE(shard.Handle({.worker = 0, .operation = operation, .value = nan}).ok());
      const std::vector<Reply> replies = shard.Take();
      ASSERT_EQ(replies.size(), 1u);
      EXPECT_EQ(replies[0].header.fate, v1::Block::NON_FINITE) << operation << ", copy " << i;
      EXPECT_EQ(replies[0].payload.size(), operation == v1::Block::PUSH_PULL ? 16u : 0u) << operation;
      EXPECT_THAT(replies[0].payload, Each(0.0f)) << operation;
    }
    EXPECT_THAT(shard.shard().Weights(), Each(0.0f));
    EXPECT_EQ(shard.Statistics(0).non_finite(), 1u) << operation;
    EXPECT_EQ(shard.Statistics(0).duplicate(), 1u) << operation;
  }
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

// Three workers, two blocks, one of which leaves for ever: whichever of the six contributions had come by
// then, the two others go on, and what the third had sent counts where it was in an update already.
TEST(SynchronousShardTest, MemberThatLeavesAtAnyPointReleasesTheOthers) {
  const float gradients[] = {1, 2, 4};
  for (int mask = 0; mask < 64; ++mask) {
    ShardHarness shard(GradientJob(true), 32, 16, {0, 1, 2});
    const auto has_come = [mask](uint32_t worker, uint32_t block) {
      return mask >> (2 * worker + block) & 1;
    };
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
      const bool made = has_come(0, block) && has_come(1, block) && has_come(2, block);
      const float mean = made ? 7.0f / 3 : 1.5f;
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

  const std::vector<uint32_t> no_members;
  shard.SetRosters({MakeRoster(0, no_members), MakeRoster(5, {1})});
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
  const std::vector<uint32_t> no_members;
  shard.SetRosters({MakeRoster(0, no_members)});
  EXPECT_EQ(shard.shard().version(), 0u);
  shard.SetRosters({MakeRoster(0, no_members), MakeRoster(3, {1})});
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
  shard.shard().SetRosters(older, /*now=*/0, &answers);
  EXPECT_FALSE(shard.shard().IsMember(7, IncarnationOf(7)));
  EXPECT_TRUE(shard.shard().IsMember(0, IncarnationOf(0)));
}

// The master drops what no block of a shard needs any more.
TEST(ShardTest, ReportsTheVersionOfItsLowestBlock) {
  ShardHarness shard(GradientJob(false), 40, 16, {0});
  for (uint64_t sequence : {1, 2, 3}) {
    for (uint32_t block : {0, 1, 2}) {
      ASSERT_EQ(shard.shard().Report().version(), sequence - 1);
      ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = sequence, .value = 1, .block = block}).ok());
    }
  }
  ShardHarness ahead(GradientJob(false), 40, 16, {0, 1, 2, 3});
  for (uint32_t worker : {0, 1, 2, 3}) {
    ASSERT_TRUE(ahead.Handle({.worker = worker, .value = 1, .block = 1}).ok());
  }
  EXPECT_EQ(ahead.shard().Report().version(), 0u) << "the mean is 4 / 3";
}

}  // namespace
}  // namespace catchment
