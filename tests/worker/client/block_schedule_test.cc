#include "worker/client/block_schedule.h"

#include <gtest/gtest.h>

#include <vector>

namespace catchment {
namespace {

// Two shards of 48 values in blocks of 10: five blocks each, the last ones of 8 values.
ParameterLayout Layout() { return *ParameterLayout::Create({{"w", {96}}}, 2, 10); }

// Calls Next until no block is left, and returns the blocks.
std::vector<int> Drain(BlockSchedule* schedule) {
  std::vector<int> blocks;
  for (int b = schedule->Next(); b != BlockSchedule::kNone; b = schedule->Next()) blocks.push_back(b);
  return blocks;
}

using Blocks = std::vector<int>;

TEST(BlockScheduleTest, BeginsWithNothingToDo) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  EXPECT_EQ(schedule.Next(), BlockSchedule::kNone);
  EXPECT_EQ(schedule.unanswered(), 0);
  EXPECT_EQ(schedule.unanswered({0, 96}), 0);
}

TEST(BlockScheduleTest, WithoutInputAllBlocksAreReadyInOrder) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 1);
  schedule.Start(false);
  EXPECT_EQ(schedule.unsent(), 5);
  EXPECT_EQ(Drain(&schedule), (Blocks{0, 1, 2, 3, 4}));
  EXPECT_EQ(schedule.unsent(), 0);
  EXPECT_EQ(schedule.unanswered(), 5);
}

TEST(BlockScheduleTest, BlockIsReadyWhenTheLastOfItsValuesIs) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  schedule.Start(true);
  EXPECT_EQ(schedule.Next(), BlockSchedule::kNone);
  EXPECT_FALSE(schedule.Ready({15, 19}));
  EXPECT_FALSE(schedule.Ready({10, 15}));
  EXPECT_EQ(schedule.Next(), BlockSchedule::kNone);
  EXPECT_TRUE(schedule.Ready({19, 20}));
  EXPECT_EQ(Drain(&schedule), Blocks{1});
  EXPECT_TRUE(schedule.Ready({40, 48})) << "the last block is a short one";
  EXPECT_EQ(Drain(&schedule), Blocks{4});
}

TEST(BlockScheduleTest, FragmentsHaveOperationsOfTheirOwnAndTheFirstOneGoesFirst) {
  // Chunks of 32 values, of fragments 0 and 1 in turn.
  const auto layout = *ParameterLayout::Create({{"w", {256}}}, 1, 16, Cuts::kAnywhere, 2);
  BlockSchedule schedule(&layout, 0);
  EXPECT_EQ(schedule.Start(true, 1), 8);
  EXPECT_EQ(schedule.Start(true, 0), 8);
  EXPECT_EQ(schedule.unanswered(), 16);
  EXPECT_TRUE(schedule.Ready({0, 64}));
  EXPECT_EQ(Drain(&schedule), (Blocks{2, 3, 0, 1})) << "fragment 1 was started first";
  EXPECT_EQ(schedule.unsent(0u), 6);
  EXPECT_EQ(schedule.unsent(1u), 6);
  for (const int block : {2, 3}) schedule.Answered(block);
  EXPECT_EQ(schedule.unanswered(1u), 6);
  EXPECT_EQ(schedule.unanswered(0u), 8);
  schedule.SendAgain();
  EXPECT_EQ(Drain(&schedule), (Blocks{0, 1}));
  EXPECT_TRUE(schedule.Ready({96, 128}));
  EXPECT_EQ(schedule.Start(true, 1), 8) << "instead of its operation in progress";
  EXPECT_EQ(schedule.Next(), BlockSchedule::kNone);
  EXPECT_EQ(schedule.unsent(0u), 6);
  EXPECT_EQ(schedule.unanswered(), 16);
}

TEST(BlockScheduleTest, ValuesOfOtherShardsDoNotCount) {
  const ParameterLayout layout = Layout();
  BlockSchedule first(&layout, 0), second(&layout, 1);
  first.Start(true);
  second.Start(true);
  EXPECT_TRUE(first.Ready({30, 70}));
  EXPECT_TRUE(second.Ready({30, 70}));
  EXPECT_EQ(Drain(&first), (Blocks{3, 4}));
  EXPECT_EQ(Drain(&second), (Blocks{0, 1}));
  EXPECT_FALSE(first.Ready({70, 96}));
}

TEST(BlockScheduleTest, LowestReadyBlockOvertakesThoseThatHaveNotLeft) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  schedule.Start(true);
  schedule.Ready({20, 48});
  EXPECT_EQ(schedule.Next(), 2);
  schedule.Ready({10, 20});
  EXPECT_EQ(schedule.Next(), 1);
  schedule.Ready({0, 10});
  EXPECT_EQ(Drain(&schedule), (Blocks{0, 3, 4}));
}

TEST(BlockScheduleTest, CountsWhatIsUnansweredInARange) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 1);
  schedule.Start(false);
  Drain(&schedule);
  EXPECT_EQ(schedule.unanswered({0, 48}), 0);
  EXPECT_EQ(schedule.unanswered({47, 49}), 1);
  EXPECT_EQ(schedule.unanswered({57, 59}), 2);
  EXPECT_EQ(schedule.unanswered({58, 68}), 1);
  EXPECT_EQ(schedule.unanswered({0, 96}), 5);
  EXPECT_TRUE(schedule.OnItsWay(1));
  schedule.Answered(1);
  EXPECT_FALSE(schedule.OnItsWay(1));
  EXPECT_EQ(schedule.unanswered({58, 68}), 0);
  EXPECT_EQ(schedule.unanswered(), 4);
  EXPECT_FALSE(schedule.OnItsWay(5)) << "there is no such block";
}

TEST(BlockScheduleTest, BrokenConnectionMakesReadyOnlyWhatWasOnItsWay) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  schedule.Start(true);
  schedule.Ready({10, 48});
  for (int expected : {1, 2, 3}) EXPECT_EQ(schedule.Next(), expected);
  schedule.Answered(2);
  schedule.SendAgain();
  EXPECT_EQ(schedule.unsent(), 4);
  EXPECT_EQ(Drain(&schedule), (Blocks{1, 3, 4}));
  schedule.Ready({0, 10});
  EXPECT_EQ(Drain(&schedule), Blocks{0});
}

TEST(BlockScheduleTest, NextOperationBeginsAnew) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  schedule.Start(true);
  schedule.Ready({0, 25});
  schedule.Next();
  schedule.Start(true);
  EXPECT_EQ(schedule.Next(), BlockSchedule::kNone);
  EXPECT_EQ(schedule.unsent(), 5);
  schedule.Ready({0, 96});
  EXPECT_EQ(Drain(&schedule), (Blocks{0, 1, 2, 3, 4}));
}

TEST(BlockScheduleDeathTest, ValuesThatAreReadyTwiceAreABug) {
  const ParameterLayout layout = Layout();
  BlockSchedule schedule(&layout, 0);
  schedule.Start(true);
  schedule.Ready({0, 6});
  EXPECT_DEATH(schedule.Ready({0, 6}), "ready twice");
}

}  // namespace
}  // namespace catchment
