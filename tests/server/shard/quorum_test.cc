#include "server/shard/quorum.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "common/base/random.h"
#include "server/shard/calls.h"
#include "server/shard/deadlines.h"
#include "server/shard/quorum_counts.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

// An overlap of 2 steps, and at most 10 s.
Quorum MakeQuorum(uint32_t minimum, double grace) {
  const v1::Job job = GradientJobWith(
      "consistency { quorum { minimum: " + std::to_string(minimum) + " grace: " + std::to_string(grace) +
      " longest_grace_seconds: 10 } } contribution { pseudo_gradient { overlap_steps: 2 } }");
  return Quorum(job.algorithm());
}

constexpr uint32_t kActive = 4;

TEST(QuorumTest, GraceIsTheShareOfWhatTheOverlapLeaves) {
  const Quorum quorum = MakeQuorum(1, 0.5);
  EXPECT_DOUBLE_EQ(quorum.Grace(0, {.step = 3}), 3);
  EXPECT_DOUBLE_EQ(quorum.Grace(2, {.step = 3}), 2) << "less what the first contribution has waited";
  EXPECT_DOUBLE_EQ(quorum.Grace(2, {.step = 3, .answer = 1}), 1.5) << "less what an answer takes";
  EXPECT_DOUBLE_EQ(quorum.Grace(7, {.step = 3}), 0) << "the overlap is over";
  EXPECT_DOUBLE_EQ(quorum.Grace(0, {.step = 100}), 10);
  EXPECT_DOUBLE_EQ(quorum.Grace(0, {.step = 0}), 10) << "no step has been timed";
}

TEST(QuorumTest, WithoutGraceTheQuorumIsEnough) {
  const Quorum quorum = MakeQuorum(2, 0);
  for (const double step : {0.0, 3.0}) {
    QuorumRound round;
    EXPECT_FALSE(quorum.IsDue(1, kActive, {.now = 5, .step = step}, &round));
    EXPECT_TRUE(quorum.IsDue(2, kActive, {.now = 6, .step = step}, &round));
  }
}

TEST(QuorumTest, IsDueFromTheDeadlineOn) {
  const Quorum quorum = MakeQuorum(2, 0.5);
  QuorumRound round;
  EXPECT_FALSE(quorum.IsDue(1, kActive, {.now = 5, .step = 3}, &round));
  EXPECT_FALSE(round.quorum_at.has_value() || round.deadline.has_value()) << "the quorum is not in";
  EXPECT_FALSE(quorum.IsDue(2, kActive, {.now = 7, .step = 3}, &round));
  ASSERT_TRUE(round.deadline.has_value());
  EXPECT_DOUBLE_EQ(*round.deadline, 9);
  EXPECT_FALSE(quorum.IsDue(3, kActive, {.now = 8.5, .step = 30}, &round)) << "later ones change nothing";
  EXPECT_DOUBLE_EQ(*round.deadline, 9);
  EXPECT_TRUE(quorum.IsDue(3, kActive, {.now = 9, .step = 3}, &round));
  EXPECT_EQ(round.quorum_at, 7);
}

TEST(QuorumTest, MemberOfTheQuorumThatLeavesEndsTheGrace) {
  const Quorum quorum = MakeQuorum(2, 0.5);
  QuorumRound round;
  quorum.IsDue(2, kActive, {.now = 0, .step = 3}, &round);
  ASSERT_TRUE(round.deadline.has_value());
  EXPECT_FALSE(quorum.IsDue(1, kActive, {.now = 100, .step = 3}, &round));
  EXPECT_FALSE(round.quorum_at.has_value() || round.deadline.has_value());
  EXPECT_FALSE(quorum.IsDue(2, kActive, {.now = 101, .step = 60}, &round));
  EXPECT_EQ(round.quorum_at, 101);
}

TEST(QuorumTest, FewerActiveMembersThanTheMinimumAreTheQuorum) {
  const Quorum quorum = MakeQuorum(3, 0);
  EXPECT_EQ(quorum.Needed(7), 3u);
  EXPECT_EQ(quorum.Needed(2), 2u);
  QuorumRound round;
  EXPECT_FALSE(quorum.IsDue(1, 2, {}, &round));
  EXPECT_TRUE(quorum.IsDue(2, 2, {}, &round));
}

// -------------------------------------------------------------------------------------------- deadlines

TEST(DeadlinesTest, AreTakenByTimeAndReplacedByBlock) {
  Deadlines deadlines(4);
  EXPECT_EQ(deadlines.Next(), Deadlines::kNever);
  EXPECT_TRUE(deadlines.TakeDue(1e9).empty());
  deadlines.Set(2, 5);
  deadlines.Set(0, 3);
  deadlines.Set(1, 4);
  EXPECT_EQ(deadlines.Next(), 3);
  deadlines.Set(0, 6);
  EXPECT_EQ(deadlines.Next(), 4);
  EXPECT_TRUE(deadlines.TakeDue(3.9).empty());
  EXPECT_EQ(deadlines.TakeDue(5), (std::vector<uint32_t>{1, 2}));
  EXPECT_EQ(deadlines.Next(), 6);
  deadlines.Set(0, Deadlines::kNever);
  EXPECT_EQ(deadlines.Next(), Deadlines::kNever);
  EXPECT_TRUE(deadlines.TakeDue(1e9).empty());
}

TEST(DeadlinesTest, BlockIsDueOnceHoweverOftenItWasSet) {
  Deadlines deadlines(2);
  for (int i = 0; i < 1000; ++i) deadlines.Set(i % 2, 1000 - i);
  deadlines.Set(1, 7);
  deadlines.Set(1, 8);
  deadlines.Set(1, 7);
  EXPECT_EQ(deadlines.TakeDue(2), (std::vector<uint32_t>{0}));
  EXPECT_EQ(deadlines.TakeDue(1000), (std::vector<uint32_t>{1}));
  EXPECT_EQ(deadlines.Next(), Deadlines::kNever);
}

TEST(DeadlinesTest, AreThoseOfAListThatIsSearched) {
  constexpr uint32_t kBlocks = 12;
  Random random(1);
  Deadlines deadlines(kBlocks);
  std::vector<double> expected(kBlocks, Deadlines::kNever);
  for (int i = 0; i < 5000; ++i) {
    const auto block = static_cast<uint32_t>(random.Below(kBlocks));
    expected[block] = random.Below(8) == 0 ? Deadlines::kNever : static_cast<double>(random.Below(1000));
    deadlines.Set(block, expected[block]);
    ASSERT_EQ(deadlines.Next(), *std::min_element(expected.begin(), expected.end()));
    if (random.Below(10) != 0) continue;
    const auto now = static_cast<double>(random.Below(300));
    std::vector<uint32_t> due;
    for (uint32_t b = 0; b < kBlocks; ++b) {
      if (expected[b] > now) continue;
      due.push_back(b);
      expected[b] = Deadlines::kNever;
    }
    std::vector<uint32_t> taken = deadlines.TakeDue(now);
    std::sort(taken.begin(), taken.end());
    ASSERT_EQ(taken, due);
  }
}

// ------------------------------------------------------------------------------------------------ calls

TEST(CallsTest, AreOncePerFragmentAndVersion) {
  Calls calls({0, 1, 0, 1}, 2);
  EXPECT_TRUE(calls.Last().empty());
  EXPECT_TRUE(calls.Begin(2, 0));
  EXPECT_FALSE(calls.Begin(0, 0));
  EXPECT_TRUE(calls.Begin(3, 0)) << "of the other fragment";
  EXPECT_TRUE(calls.Begin(0, 1));
  EXPECT_FALSE(calls.Begin(2, 0)) << "a block that is behind";
  ASSERT_EQ(calls.Last().size(), 2u);
  EXPECT_EQ(calls.Last()[0].block, 0u);
  EXPECT_EQ(calls.Last()[0].version, 1u);
  EXPECT_EQ(calls.Last()[1].block, 3u);
  EXPECT_EQ(calls.Last()[1].version, 0u);
}

// ----------------------------------------------------------------------------------------------- counts

TEST(QuorumCountsTest, AddUpUpdatesByTheirEndsAndTheSharesOfTheirSamples) {
  QuorumCounts counts;
  EXPECT_EQ(counts.Statistics().ByteSizeLong(), 0u);
  counts.Count(QuorumCounts::End::kAll, 0.5, {{0, 1}, {7, 3}});
  counts.Count(QuorumCounts::End::kAll, 0, {{0, 2}, {3, 2}});
  counts.Count(QuorumCounts::End::kGrace, 1.25, {{7, 5}});
  counts.Count(QuorumCounts::End::kLoss, 0, {});
  counts.Count(QuorumCounts::End::kLoss, 0, {{3, 0}});
  counts.Count(QuorumCounts::End::kLoss, 0, {{3, 0}});
  const v1::QuorumStatistics statistics = counts.Statistics();
  EXPECT_EQ(statistics.by_all(), 2u);
  EXPECT_EQ(statistics.by_grace(), 1u);
  EXPECT_EQ(statistics.by_loss(), 3u);
  EXPECT_EQ(statistics.grace_seconds(), 1.75);
  EXPECT_EQ(std::vector<uint64_t>(statistics.merged_values().begin(), statistics.merged_values().end()),
            (std::vector<uint64_t>{0, 1, 2}));
  EXPECT_EQ(std::vector<uint64_t>(statistics.merged_counts().begin(), statistics.merged_counts().end()),
            (std::vector<uint64_t>{1, 3, 2}));
  EXPECT_EQ(counts.SharesOf(0), 0.75);
  EXPECT_EQ(counts.SharesOf(3), 0.5) << "an update without samples has no shares";
  EXPECT_EQ(counts.SharesOf(7), 1.75);
  EXPECT_EQ(counts.SharesOf(1), 0);
}

}  // namespace
}  // namespace catchment
