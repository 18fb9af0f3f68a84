// The workers that wait at a shard, and the resulting updates: groups, backup workers, softsync, emulated
// delay, stale synchronous parallel. The learning rate is 1 and weights begin at 0, so that the numbers can
// be verified by hand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <map>
#include <string>
#include <vector>

#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::Each;

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<std::string> Names(const std::vector<Reply>& replies) {
  std::vector<std::string> names;
  for (const Reply& reply : replies) names.push_back(reply.to);
  return names;
}

// staleness -> applied pushes that had it
std::map<uint64_t, uint64_t> Staleness(const ShardHarness& shard, uint32_t worker) {
  const v1::WorkerStatistics statistics = shard.Statistics(worker);
  std::map<uint64_t, uint64_t> counts;
  for (int i = 0; i < statistics.staleness_values_size(); ++i) {
    counts[statistics.staleness_values(i)] = statistics.staleness_counts(i);
  }
  return counts;
}

// ------------------------------------------------------------------------------------------------ groups

const char kHybrid[] = "consistency { grouped { groups: 2 } }";
const char kBackup[] = "consistency { synchronous { backup_workers: 1 } }";

TEST(GroupsShardTest, GroupsMakeUpdatesOfTheirOwnMembersWeighedBySamples) {
  ShardHarness shard(GradientJobWith(kHybrid), 16, 16, {0, 1, 2, 3});
  ASSERT_TRUE(shard.Handle({.worker = 3, .value = 30, .samples = 3}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 10}).ok());
  std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 1", "worker 3"})) << "in worker order";
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.fate, v1::Block::APPLIED);
    EXPECT_EQ(reply.header.version, 1u);
    EXPECT_EQ(reply.header.staleness, 0u);
    EXPECT_THAT(reply.payload, Each(-25.0f)) << "-(10 + 3 * 30) / 4";
  }
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 3}).ok());
  replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 2"}));
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.version, 2u);
    EXPECT_EQ(reply.header.staleness, 1u) << "the other group's update";
    EXPECT_THAT(reply.payload, Each(-27.0f)) << "-25 - (1 + 3) / 2";
  }
}

// The other group's updates make a contribution stale; only its own group's make it late.
TEST(GroupsShardTest, ContributionIsLateWhenItIsOlderThanItsGroupsLastUpdate) {
  ShardHarness shard(GradientJobWith(kHybrid), 16, 16, {0, 1});
  for (uint64_t i = 0; i < 3; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = i + 1, .version = i, .value = 1}).ok());
  }
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);
  EXPECT_EQ(Staleness(shard, 0), (std::map<uint64_t, uint64_t>{{3, 1}}));
  shard.Take();
  // Version 3 is older than the update of group 0 that led to 4.
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 3, .value = 1}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].header.fate, v1::Block::LATE);
  EXPECT_EQ(replies[0].header.version, 4u);
  EXPECT_THAT(replies[0].payload, Each(-4.0f));
  EXPECT_EQ(shard.Statistics(0).late(), 1u);
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 3, .version = 4, .value = 1}).ok());
  EXPECT_EQ(shard.Take().at(0).header.fate, v1::Block::APPLIED) << "it goes on with fresh weights";
}

TEST(GroupsShardTest, BackupWorkersContributionIsDroppedCountedAndItsWorkerTold) {
  ShardHarness shard(GradientJobWith(kBackup), 16, 16, {0, 1, 2});
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 4}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 2}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0", "worker 2"}));
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 100}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 1"}));
  EXPECT_EQ(replies[0].header.fate, v1::Block::LATE);
  EXPECT_EQ(replies[0].header.version, 1u);
  EXPECT_THAT(replies[0].payload, Each(-3.0f)) << "fresh weights";
  EXPECT_THAT(shard.shard().Weights(), Each(-3.0f)) << "-(4 + 2) / 2";
  EXPECT_EQ(shard.Statistics(1).late(), 1u);
  EXPECT_EQ(shard.Statistics(1).applied(), 0u);
  // In the next round another is the last.
  for (uint32_t worker : {1, 0}) {
    ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = 2, .version = 1, .value = 1}).ok());
  }
  EXPECT_EQ(shard.Statistics(1).applied(), 1u);
  EXPECT_THAT(shard.shard().Weights(), Each(-4.0f));
}

TEST(GroupsShardTest, PushIsNotUnderWayWhenItsLateBlocksAreAnsweredAndTheOthersWait) {
  ShardHarness shard(GradientJobWith(kBackup), 32, 16, {0, 1, 2});
  for (uint32_t worker : {0, 1}) ASSERT_TRUE(shard.Handle({.worker = worker, .block = 0}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 2, .block = 0}).ok());
  EXPECT_EQ(shard.shard().PushUnderWay(2, IncarnationOf(2)), 1u);
  ASSERT_TRUE(shard.Handle({.worker = 2, .block = 1}).ok());
  EXPECT_EQ(shard.shard().PushUnderWay(2, IncarnationOf(2)), 0u) << "nothing is on its way any more";
}

TEST(GroupsShardTest, RoundOfNaNsIsRefusedAndTheGroupGoesOn) {
  ShardHarness shard(GradientJobWith(kHybrid), 16, 16, {0, 2});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = kNaN}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = kNaN}).ok());
  for (const Reply& reply : shard.Take()) EXPECT_EQ(reply.header.fate, v1::Block::NON_FINITE);
  EXPECT_THAT(shard.shard().Weights(), Each(0.0f));
  for (uint32_t worker : {0, 2}) {
    ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = 2, .version = 1, .value = 1}).ok());
  }
  EXPECT_THAT(shard.shard().Weights(), Each(-1.0f));
}

TEST(GroupsShardTest, ElasticGroupsExchangeEachAgainstOneCenter) {
  v1::Job job = ElasticJob(false, 0.25f);
  job.set_workers(4);
  job.mutable_algorithm()->mutable_consistency()->mutable_grouped()->set_groups(2);
  ShardHarness shard(job, 16, 16, {0, 1, 2, 3});
  for (uint32_t worker : {0, 1, 2, 3}) {
    const float x = worker % 2 == 0 ? 8 : 4;
    ASSERT_TRUE(shard.Handle({.worker = worker, .operation = v1::Block::EXCHANGE, .value = x}).ok());
  }
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 2", "worker 1", "worker 3"}));
  EXPECT_THAT(replies[1].payload, Each(2.0f)) << "0.25 * (8 - 0), the center moves by 4";
  EXPECT_THAT(replies[2].payload, Each(0.0f)) << "0.25 * (4 - 4)";
  EXPECT_THAT(shard.shard().Weights(), Each(4.0f));
}

TEST(GroupsShardTest, ResentElasticExchangeGetsTheAnswerOfItsGroupsUpdate) {
  v1::Job job = ElasticJob(false, 0.25f);
  job.set_workers(4);
  job.mutable_algorithm()->mutable_consistency()->mutable_grouped()->set_groups(2);
  ShardHarness shard(job, 16, 16, {0, 1, 2, 3});
  for (uint32_t worker : {0, 1, 2, 3, 0, 1}) {
    const float x = worker % 2 == 0 ? 8 : 4;
    ASSERT_TRUE(shard.Handle({.worker = worker, .operation = v1::Block::EXCHANGE, .value = x}).ok());
  }
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 6u);
  EXPECT_THAT(replies[4].payload, Each(2.0f)) << "0.25 * (8 - 0)";
  EXPECT_THAT(replies[5].payload, Each(0.0f)) << "0.25 * (4 - 4)";
  EXPECT_THAT(shard.shard().Weights(), Each(4.0f));
}

TEST(GroupsShardTest, NewcomerIsWaitedForFromTheRosterThatHasItOn) {
  ShardHarness shard(GradientJobWith(kHybrid), 16, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  shard.SetRosters({MakeRoster(0, {0, 2})});
  ASSERT_TRUE(shard.Handle({.worker = 2, .operation = v1::Block::PULL}).ok());
  EXPECT_EQ(shard.Take().at(1).header.version, 1u);
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 1}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 2, .version = 1, .value = 3}).ok());
  EXPECT_EQ(shard.Take().size(), 2u);
  EXPECT_THAT(shard.shard().Weights(), Each(-3.0f)) << "-1 - (1 + 3) / 2";
}

// Three workers of a group, two blocks; one of them leaves, or runs out of work, whichever of the six
// contributions had come by then. The two others go on. What the third had sent counts where it was in an
// update already, and where it only ran out of work.
TEST(GroupsShardTest, MemberThatLeavesOrIsIdleAtAnyPointReleasesTheOthers) {
  const float gradients[] = {1, 2, 4};
  const v1::Roster all = MakeRoster(0, {0, 2, 4});
  for (const bool leaves : {true, false}) {
    const v1::Roster after = leaves ? MakeRoster(0, {0, 2}) : WithIdle(all, {4});
    for (int mask = 0; mask < 64; ++mask) {
      ShardHarness shard(GradientJobWith(kHybrid), 32, 16, {0, 2, 4});
      const auto has_come = [mask](int rank, uint32_t block) { return mask >> (2 * rank + block) & 1; };
      const auto send = [&](uint32_t rank, uint32_t block) {
        ASSERT_TRUE(shard.Handle({.worker = 2 * rank, .value = gradients[rank], .block = block}).ok())
            << mask;
      };
      for (uint32_t rank : {0, 1, 2}) {
        for (uint32_t block : {0, 1}) {
          if (has_come(rank, block)) send(rank, block);
        }
      }
      shard.SetRosters({after});
      for (uint32_t rank : {0, 1}) {
        for (uint32_t block : {0, 1}) {
          if (!has_come(rank, block)) send(rank, block);
        }
      }
      int answers = 0;
      for (const Reply& reply : shard.Take()) answers += reply.to != "worker 4" && reply.header.version == 1;
      EXPECT_EQ(answers, 4) << mask;
      const std::vector<float> weights = shard.shard().Weights();
      for (uint32_t block : {0, 1}) {
        const bool made = has_come(0, block) && has_come(1, block);
        const float mean = has_come(2, block) && (made || !leaves) ? 7.0f / 3 : 1.5f;
        EXPECT_NEAR(weights[16 * block], -mean, 1e-6) << mask << " block " << block;
      }
    }
  }
}

// ----------------------------------------------------------------------------------------------- softsync

const char kSoftsync[] = "consistency { n_softsync { n: 1 } }";

TEST(SoftsyncShardTest, UpdateIsMadeOfAsManyAsThereAreMembersAWorkersOwnAmongThem) {
  ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0, 1, 2});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .value = 4, .samples = 2}).ok());
  std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u) << "no worker waits";
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.fate, v1::Block::ACCEPTED);
    EXPECT_EQ(reply.header.version, 0u);
    EXPECT_THAT(reply.payload, Each(0.0f));
  }
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 3}).ok());
  replies = shard.Take();
  ASSERT_EQ(replies.size(), 1u);
  EXPECT_EQ(replies[0].header.version, 1u) << "it is answered when the update that it made due is made";
  EXPECT_THAT(replies[0].payload, Each(-3.0f)) << "-(1 + 2 * 4 + 3) / 4";
  EXPECT_EQ(shard.shard().Report().samples(), 4u);
  EXPECT_EQ(shard.Statistics(0).applied(), 2u);
}

TEST(SoftsyncShardTest, StalenessIsOfTheUpdateThatAContributionIsPartOf) {
  ShardHarness shard(GradientJobWith("consistency { n_softsync { n: 2 } }"), 16, 16, {0, 1, 2, 3});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_TRUE(Staleness(shard, 0).empty()) << "it is not known yet";
  for (uint64_t i = 0; i < 4; ++i) {  // the first makes an update with worker 0's
    ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = i + 1, .version = 0, .value = 1}).ok());
  }
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 0, .value = 1}).ok());
  EXPECT_EQ(shard.shard().version(), 3u);
  EXPECT_EQ(Staleness(shard, 0), (std::map<uint64_t, uint64_t>{{0, 1}, {2, 1}}));
  EXPECT_EQ(Staleness(shard, 1), (std::map<uint64_t, uint64_t>{{0, 1}, {1, 2}, {2, 1}}));
}

TEST(SoftsyncShardTest, UpdateMayBecomeDueWhenMembersLeaveOrAreIdle) {
  for (const v1::Roster& after : {MakeRoster(0, {0, 1}), WithIdle(MakeRoster(0, {0, 1, 2}), {2})}) {
    ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0, 1, 2});
    for (uint32_t worker : {2, 0}) ASSERT_TRUE(shard.Handle({.worker = worker, .value = 1}).ok());
    EXPECT_EQ(shard.shard().version(), 0u);
    shard.SetRosters({after});
    EXPECT_EQ(shard.shard().version(), 1u);
    EXPECT_THAT(shard.shard().Weights(), Each(-1.0f)) << "what a worker sent before it left counts";
  }
}

TEST(SoftsyncShardTest, NothingIsLeftWhenAllHaveLeft) {
  ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0, 1, 2});
  for (uint32_t worker : {2, 0}) ASSERT_TRUE(shard.Handle({.worker = worker, .value = 1}).ok());
  shard.SetRosters({MakeRoster(0, std::vector<uint32_t>())});
  EXPECT_EQ(shard.Statistics(0).applied() + shard.Statistics(2).applied(), 2u);
}

TEST(SoftsyncShardTest, NaNIsRefusedAtOnceAndIsNoneOfTheContributions) {
  ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = kNaN}).ok());
  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(replies.at(0).header.fate, v1::Block::NON_FINITE);
  EXPECT_THAT(replies.at(0).payload, Each(0.0f)) << "weights to go on with";
  EXPECT_EQ(shard.Statistics(0).non_finite(), 1u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 2}).ok());
  EXPECT_EQ(shard.shard().version(), 0u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 2, .value = 4}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-3.0f));
}

// ------------------------------------------------------------------------------------------ staleness limit

TEST(StalenessLimitShardTest, ContributionAtTheLimitIsDroppedCountedAndItsWorkerTold) {
  ShardHarness shard(GradientJobWith("consistency { asynchronous { staleness_limit: 2 } }"), 16, 16, {0, 1});
  for (uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = i + 1, .version = i, .value = 1}).ok());
  }
  shard.Take();
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 1, .version = 0, .value = 100}).ok());
  std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0"}));
  EXPECT_EQ(replies[0].header.fate, v1::Block::LATE);
  EXPECT_EQ(replies[0].header.version, 2u) << "it makes no version";
  EXPECT_THAT(replies[0].payload, Each(-2.0f)) << "fresh weights";
  EXPECT_EQ(shard.Statistics(0).late(), 1u);
  EXPECT_EQ(shard.Statistics(0).applied(), 0u);
  // Sent again over another connection it is neither applied nor counted a second time.
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 1, .version = 0, .value = 100}).ok());
  replies = shard.Take();
  EXPECT_EQ(replies.at(0).header.fate, v1::Block::DUPLICATE);
  EXPECT_THAT(replies.at(0).payload, Each(-2.0f));
  EXPECT_EQ(shard.Statistics(0).late(), 1u);
  // One version below the limit counts.
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 10}).ok());
  EXPECT_EQ(shard.Take().at(0).header.fate, v1::Block::APPLIED);
  EXPECT_THAT(shard.shard().Weights(), Each(-12.0f));
  EXPECT_EQ(Staleness(shard, 0), (std::map<uint64_t, uint64_t>{{1, 1}}));
}

TEST(StalenessLimitShardTest, ScheduleCountsTheSamplesOfWhatIsDropped) {
  v1::Job job = GradientJobWith("consistency { asynchronous { staleness_limit: 1 } }");
  ShardHarness shard(job, 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 1, .version = 0, .value = 1, .samples = 3}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 1, .version = 0, .value = 1, .samples = 5}).ok());
  shard.shard().Checkpoint(1);
  const v1::BlockState& state = shard.snapshots().at(0).state.blocks(0);
  EXPECT_EQ(state.samples(), 3u);
  EXPECT_EQ(state.late_samples(), 5u);
}

// ------------------------------------------------------------------------------------------ emulated delay

TEST(DelayShardTest, LoneWorkersStalenessGrowsToTheDelayAndStays) {
  constexpr uint64_t kDelay = 2;
  ShardHarness shard(GradientJobWith("consistency { asynchronous { emulated_delay: 2 } }"), 16, 16, {0});
  uint64_t version = 0;
  float applied = 0;
  std::map<uint64_t, uint64_t> staleness;
  for (uint64_t k = 1; k <= 7; ++k) {
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = k, .version = version, .value = 1.0f * k}).ok());
    if (k > kDelay) {
      const uint64_t push = k - kDelay;
      applied += push;
      ++staleness[std::min(push - 1, kDelay)];
    }
    const std::vector<Reply> replies = shard.Take();
    ASSERT_EQ(replies.size(), 1u);
    EXPECT_EQ(replies[0].header.fate, v1::Block::ACCEPTED);
    EXPECT_THAT(replies[0].payload, Each(-applied)) << "push " << k;
    version = replies[0].header.version;
    EXPECT_EQ(version, k < kDelay ? 0 : k - kDelay);
    EXPECT_EQ(Staleness(shard, 0), staleness) << "push " << k;
  }
  EXPECT_EQ(shard.Statistics(0).applied(), 5u) << "the last two are left out";
}

TEST(DelayShardTest, OldestOfAllWorkersComesFirst) {
  ShardHarness shard(GradientJobWith("consistency { asynchronous { emulated_delay: 2 } }"), 16, 16,
                     {0, 1, 2});
  ASSERT_TRUE(shard.Handle({.worker = 2, .value = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 10}).ok());
  EXPECT_EQ(shard.shard().version(), 0u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 100}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-1.0f));
  shard.SetRosters({MakeRoster(0, {1})});
  ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = 2, .version = 1, .value = 1000}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-11.0f)) << "its worker has left";
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);
}

TEST(DelayShardTest, WhatIsHeldBackIsInNoCheckpoint) {
  ShardHarness shard(GradientJobWith("consistency { asynchronous { emulated_delay: 2 } }"), 16, 16, {0});
  for (uint64_t k = 1; k <= 3; ++k) ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = k, .value = 1}).ok());
  shard.shard().Checkpoint(5);
  const ShardSnapshot& snapshot = shard.snapshots().at(0);
  EXPECT_THAT(snapshot.weights, Each(-1.0f));
  EXPECT_EQ(snapshot.state.blocks(0).version(), 1u);
  EXPECT_EQ(snapshot.state.samples(), 1u);
  Shard::Contents contents{
      snapshot.weights, snapshot.states, {snapshot.state.blocks().begin(), snapshot.state.blocks().end()}, 5};
  ShardHarness resumed(GradientJobWith("consistency { asynchronous { emulated_delay: 2 } }"), 16, 16, {0},
                       std::move(contents));
  for (uint64_t k = 1; k <= 3; ++k) {
    ASSERT_TRUE(resumed.Handle({.worker = 0, .sequence = k, .version = 1, .value = 10}).ok());
  }
  EXPECT_THAT(resumed.shard().Weights(), Each(-11.0f));
  EXPECT_EQ(Staleness(resumed, 0), (std::map<uint64_t, uint64_t>{{0, 1}}));
}

// ----------------------------------------------------------------------------------- answered before applied

// Every block of every push is sent three times: when it is new, while it waits, and when it was applied.
TEST(AcceptedShardTest, ResentBlocksCountOnce) {
  for (const char* algorithm :
       {"consistency { n_softsync { n: 1 } }", "consistency { asynchronous { emulated_delay: 2 } }"}) {
    ShardHarness shard(GradientJobWith(algorithm), 32, 16, {0, 1, 2});
    for (uint32_t block : {0, 1}) {
      for (const auto& [worker, fate] : {std::pair(0u, v1::Block::ACCEPTED),
                                         {0u, v1::Block::DUPLICATE},
                                         {1u, v1::Block::ACCEPTED},
                                         {0u, v1::Block::DUPLICATE},
                                         {1u, v1::Block::DUPLICATE},
                                         {2u, v1::Block::ACCEPTED},
                                         {0u, v1::Block::DUPLICATE}}) {
        ASSERT_TRUE(shard.Handle({.worker = worker, .value = 3, .block = block}).ok());
        const std::vector<Reply> replies = shard.Take();
        ASSERT_EQ(replies.size(), 1u);
        EXPECT_EQ(replies[0].header.fate, fate) << algorithm << " block " << block << " worker " << worker;
        EXPECT_EQ(replies[0].payload.size(), 16u);
      }
    }
    EXPECT_THAT(shard.shard().Weights(), Each(-3.0f)) << algorithm;
    EXPECT_EQ(shard.Statistics(0).applied(), 1u) << algorithm;
    EXPECT_EQ(shard.Statistics(0).duplicate(), 6u) << algorithm;
  }
}

TEST(AcceptedShardTest, PushIsAnsweredWithoutWeights) {
  ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PUSH, .value = 1}).ok());
  const std::vector<Reply> replies = shard.Take();
  EXPECT_EQ(replies.at(0).header.fate, v1::Block::ACCEPTED);
  EXPECT_TRUE(replies.at(0).payload.empty());
  EXPECT_THAT(shard.shard().Weights(), Each(-1.0f));
}

TEST(AcceptedShardTest, PullOfALaterVersionWaitsForTheUpdate) {
  ShardHarness shard(GradientJobWith(kSoftsync), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PULL, .version = 1}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0"}));
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 1}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0", "worker 1"}));
}

// -------------------------------------------------------------------------------- stale synchronous parallel

std::string Bound(int bound) {
  return "consistency { bounded_staleness { bound: " + std::to_string(bound) + " } }";
}

TEST(BoundedShardTest, WorkerThatIsTooFarAheadIsAnsweredWhenTheSlowestHasComeCloser) {
  ShardHarness shard(GradientJobWith(Bound(1)), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_EQ(shard.Take().size(), 1u) << "one ahead";
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .version = 1, .value = 1}).ok());
  EXPECT_TRUE(shard.Take().empty()) << "two ahead";
  EXPECT_THAT(shard.shard().Weights(), Each(-2.0f)) << "what it sent is applied as it comes";
  EXPECT_EQ(shard.Statistics(0).applied(), 2u);
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 10}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 1"}));
  for (const Reply& reply : replies) {
    EXPECT_EQ(reply.header.fate, v1::Block::APPLIED);
    EXPECT_EQ(reply.header.version, 3u);
    EXPECT_THAT(reply.payload, Each(-12.0f)) << "weights as they are now";
  }
  EXPECT_EQ(replies[0].header.staleness, 0u);
  EXPECT_EQ(replies[1].header.staleness, 2u);
}

TEST(BoundedShardTest, BoundOfZeroIsLockstep) {
  ShardHarness shard(GradientJobWith(Bound(0)), 16, 16, {0, 1, 2});
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t worker : {1, 2}) {
      ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = round, .value = 1}).ok());
      EXPECT_TRUE(shard.Take().empty()) << round;
    }
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = round, .value = 1}).ok());
    EXPECT_EQ(shard.Take().size(), 3u) << round;
  }
}

TEST(BoundedShardTest, BlocksHaveClocksOfTheirOwn) {
  ShardHarness shard(GradientJobWith(Bound(0)), 32, 16, {0, 1});
  for (uint32_t block : {0, 1}) ASSERT_TRUE(shard.Handle({.worker = 0, .block = block}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .block = 1}).ok());
  for (const Reply& reply : shard.Take()) EXPECT_EQ(reply.header.block, 1u);
}

TEST(BoundedShardTest, SlowestThatLeavesOrIsIdleReleasesTheOthers) {
  for (const v1::Roster& after : {MakeRoster(0, {0, 1}), WithIdle(MakeRoster(0, {0, 1, 2}), {2})}) {
    ShardHarness shard(GradientJobWith(Bound(1)), 16, 16, {0, 1, 2});
    for (uint32_t worker : {0, 1}) {
      for (uint64_t sequence : {1, 2}) {
        ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = sequence, .value = 1}).ok());
      }
    }
    EXPECT_EQ(shard.Take().size(), 2u);
    shard.SetRosters({after});
    const std::vector<Reply> replies = shard.Take();
    EXPECT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 1"}));
    EXPECT_THAT(replies.at(0).payload, Each(-4.0f));
  }
}

TEST(BoundedShardTest, NothingIsKeptForAWorkerThatHasLeft) {
  ShardHarness shard(GradientJobWith(Bound(0)), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_TRUE(shard.Take().empty());
  shard.SetRosters({MakeRoster(0, {1})});
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"worker 0"}));
}

TEST(BoundedShardTest, NewcomerBeginsWhereTheMasterSays) {
  ShardHarness shard(GradientJobWith(Bound(1)), 16, 16, {0});
  for (uint64_t i = 0; i < 5; ++i)
    ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = i + 1, .version = i}).ok());
  v1::Roster both = MakeRoster(0, {0, 1});
  both.mutable_members(1)->set_clock(5);
  shard.SetRosters({both});
  shard.Take();
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 6, .version = 5}).ok());
  EXPECT_EQ(shard.Take().size(), 1u);
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 7, .version = 6}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .version = 5}).ok());
  EXPECT_EQ(shard.Take().size(), 2u);
}

TEST(BoundedShardTest, ExchangeIsAnsweredWithTheDifferenceThatMovedTheCenter) {
  v1::Job job = ElasticJob(false, 0.5f);
  job.mutable_algorithm()->mutable_consistency()->mutable_bounded_staleness()->set_bound(0);
  ShardHarness shard(job, 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::EXCHANGE, .value = 4}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .operation = v1::Block::EXCHANGE, .value = 8}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(Names(replies), (std::vector<std::string>{"worker 0", "worker 1"}));
  EXPECT_THAT(replies[0].payload, Each(2.0f)) << "0.5 * (4 - 0)";
  EXPECT_EQ(replies[0].header.version, 1u) << "the center that it was taken to";
  EXPECT_THAT(replies[1].payload, Each(3.0f)) << "0.5 * (8 - 2)";
  EXPECT_THAT(shard.shard().Weights(), Each(5.0f));
}

TEST(BoundedShardTest, ResentPushOfAWorkerThatIsHeldUpIsAnsweredOnceOverTheNewConnection) {
  ShardHarness shard(GradientJobWith(Bound(0)), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .to = "cut connection"}).ok());
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1, .to = "new connection"}).ok());
  EXPECT_TRUE(shard.Take().empty()) << "it must not run ahead because its connection broke";
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 1}).ok());
  EXPECT_EQ(Names(shard.Take()), (std::vector<std::string>{"new connection", "worker 1"}));
  EXPECT_THAT(shard.shard().Weights(), Each(-2.0f));
  EXPECT_EQ(shard.Statistics(0).applied(), 1u);
  EXPECT_EQ(shard.Statistics(0).duplicate(), 1u);
}

// A thread that applies what came over the broken connection may be overtaken by the one of the new
// connection.
TEST(OvertakenCopyTest, AnswersGoOverTheNewerConnection) {
  const auto handle = [](ShardHarness* shard, v1::Block::Operation operation, uint64_t version) {
    for (const auto& [connection, to] :
         std::map<uint64_t, const char*, std::greater<>>{{2, "new connection"}, {1, "cut connection"}}) {
      ASSERT_TRUE(shard
                      ->Handle({.worker = 0,
                                .operation = operation,
                                .version = version,
                                .value = 1,
                                .to = to,
                                .connection = connection})
                      .ok());
    }
    EXPECT_TRUE(shard->Take().empty());
    ASSERT_TRUE(shard->Handle({.worker = 1, .value = 1}).ok());
  };
  ShardHarness group(GradientJob(/*synchronous=*/true), 16, 16, {0, 1});
  handle(&group, v1::Block::PUSH_PULL, 0);
  EXPECT_EQ(Names(group.Take()), (std::vector<std::string>{"new connection", "worker 1"}));
  EXPECT_THAT(group.shard().Weights(), Each(-1.0f)) << "the mean of one contribution of each";

  ShardHarness bounded(GradientJobWith(Bound(0)), 16, 16, {0, 1});
  handle(&bounded, v1::Block::PUSH_PULL, 0);
  EXPECT_EQ(Names(bounded.Take()), (std::vector<std::string>{"new connection", "worker 1"}));

  ShardHarness pull(GradientJob(/*synchronous=*/false), 16, 16, {0, 1});
  handle(&pull, v1::Block::PULL, 1);
  EXPECT_EQ(Names(pull.Take()), (std::vector<std::string>{"worker 1", "new connection"}));
}

TEST(BoundedShardTest, RefusedPushMovesTheClockToo) {
  ShardHarness shard(GradientJobWith(Bound(0)), 16, 16, {0, 1});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = kNaN}).ok());
  EXPECT_TRUE(shard.Take().empty());
  ASSERT_TRUE(shard.Handle({.worker = 1, .value = 1}).ok());
  const std::vector<Reply> replies = shard.Take();
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].header.fate, v1::Block::NON_FINITE);
  EXPECT_THAT(replies[0].payload, Each(-1.0f));
}

// --------------------------------------------------------------------------------------------- resuming

// All workers begin with the checkpoint's weights, so the state of waiting workers need not be in it.
TEST(ResumedShardTest, EveryModeGoesOnFromTheCheckpointsVersion) {
  for (const char* algorithm :
       {kHybrid, kBackup, kSoftsync, "consistency { bounded_staleness { bound: 0 } }"}) {
    Shard::Contents contents;
    contents.weights.assign(16, 5.0f);
    contents.blocks.resize(1);
    contents.blocks[0].set_version(40);
    ShardHarness shard(GradientJobWith(algorithm), 16, 16, {0, 2}, std::move(contents));
    ASSERT_TRUE(shard.Handle({.worker = 0, .operation = v1::Block::PULL}).ok());
    ASSERT_EQ(shard.Take().at(0).header.version, 40u);
    for (uint32_t worker : {0, 2}) {
      ASSERT_TRUE(shard.Handle({.worker = worker, .version = 40, .value = 1}).ok());
    }
    const float least = algorithm == std::string("consistency { bounded_staleness { bound: 0 } }") ? 3 : 4;
    EXPECT_THAT(shard.shard().Weights(), Each(least)) << algorithm;
    EXPECT_EQ(shard.Statistics(0).applied(), 1u) << algorithm;
    if (algorithm == kBackup) continue;
    EXPECT_EQ(shard.Statistics(2).applied(), 1u) << algorithm;
  }
}

// ---------------------------------------------------------------------------------------- the learning rate

TEST(WorkerScalingShardTest, LearningRateFollowsTheRosterThatMakesTheUpdate) {
  v1::Job job = GradientJobWith("");
  job.set_workers(4);
  job.mutable_optimizer()->set_worker_scaling(v1::Optimizer::LINEAR);
  ShardHarness shard(job, 16, 16, {0, 1, 2, 3});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 8}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-8.0f));
  shard.SetRosters({WithIdle(MakeRoster(0, {0, 1, 2}), {2})});
  ASSERT_TRUE(shard.Handle({.worker = 0, .sequence = 2, .value = 8}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-12.0f)) << "two of four work";
  job.mutable_optimizer()->set_worker_scaling(v1::Optimizer::SQUARE_ROOT);
  ShardHarness root(job, 16, 16, {0});
  ASSERT_TRUE(root.Handle({.worker = 0, .value = 8}).ok());
  EXPECT_THAT(root.shard().Weights(), Each(-4.0f));
}

TEST(WorkerScalingShardTest, SynchronousUpdatesAreScaledByTheirVersionsRoster) {
  v1::Job job = GradientJob(true);
  job.set_workers(2);
  job.mutable_optimizer()->set_worker_scaling(v1::Optimizer::LINEAR);
  ShardHarness shard(job, 16, 16, {0});
  shard.SetRosters({MakeRoster(0, {0}), MakeRoster(1, {0, 1})});
  ASSERT_TRUE(shard.Handle({.worker = 0, .value = 1}).ok());
  EXPECT_THAT(shard.shard().Weights(), Each(-0.5f));
  for (uint32_t worker : {0, 1}) {
    ASSERT_TRUE(shard.Handle({.worker = worker, .sequence = 2 - worker, .version = 1, .value = 1}).ok());
  }
  EXPECT_THAT(shard.shard().Weights(), Each(-1.5f));
}

}  // namespace
}  // namespace catchment
