#include "server/control/checkpoint_schedule.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

v1::Checkpointing Settings(uint64_t every_updates, double every_seconds) {
  v1::Checkpointing settings;
  settings.set_every_updates(every_updates);
  settings.set_every_seconds(every_seconds);
  return settings;
}

constexpr bool kSynchronous = true, kAsynchronous = false;

void ExpectLast(const CheckpointSchedule& schedule, uint64_t number, uint64_t version) {
  EXPECT_EQ(schedule.last().number, number);
  EXPECT_EQ(schedule.last().version, version);
}

TEST(CheckpointScheduleTest, SynchronousMultiplesAreAnnouncedBeforeAGrantMayReachBeyondThem) {
  CheckpointSchedule schedule(Settings(40, 0), kSynchronous, 0);
  EXPECT_FALSE(schedule.Step({.granted = 0, .reach = 16}, 1));
  EXPECT_FALSE(schedule.Step({.granted = 24, .reach = 40}, 1)) << "the next grant ends there";
  ASSERT_TRUE(schedule.Step({.granted = 25, .reach = 41}, 7));
  ExpectLast(schedule, 40, 40);
  EXPECT_EQ(schedule.last().generation, 7u);
}

TEST(CheckpointScheduleTest, SynchronousCheckpointIsOfAVersionThatNothingIsGrantedBeyond) {
  CheckpointSchedule schedule(Settings(5, 0), kSynchronous, 0);
  ASSERT_TRUE(schedule.Step({.granted = 0, .reach = 16}, 1));
  ExpectLast(schedule, 5, 5);
  EXPECT_FALSE(schedule.Step({.version = 16, .granted = 32, .reach = 48}, 2)) << "5 is not saved yet";
  EXPECT_TRUE(schedule.Settle(5));
  ASSERT_TRUE(schedule.Step({.version = 16, .granted = 32, .reach = 48}, 2));
  ExpectLast(schedule, 35, 35);
}

TEST(CheckpointScheduleTest, MultiplesFollowTheVersionThatTheJobBeganWith) {
  CheckpointSchedule schedule(Settings(5, 0), kSynchronous, 10);
  ASSERT_TRUE(schedule.Step({.earlier = 10, .version = 10, .granted = 10, .reach = 26}, 1));
  ExpectLast(schedule, 15, 15);
}

TEST(CheckpointScheduleTest, NumbersOfTheJobsEarlierRunsAreNotUsedAgain) {
  CheckpointSchedule schedule(Settings(5, 0), kSynchronous, 10);
  ASSERT_TRUE(schedule.Step({.earlier = 30, .version = 10, .granted = 10, .reach = 26}, 1));
  ExpectLast(schedule, 31, 15);
}

TEST(CheckpointScheduleTest, AVersionThatNoWorkerWillReachIsNotAwaitedAtTheEnd) {
  CheckpointSchedule schedule(Settings(50, 0), kAsynchronous, 0);
  ASSERT_TRUE(schedule.Step({.version = 3}, 1));
  ExpectLast(schedule, 50, 50);
  EXPECT_FALSE(schedule.Step({.version = 20, .draining = true}, 2)) << "workers still push";
  ASSERT_TRUE(schedule.Step({.version = 20, .draining = true, .at_rest = true}, 2));
  ExpectLast(schedule, 51, 0);
  EXPECT_TRUE(schedule.last().at_rest);
}

TEST(CheckpointScheduleTest, SynchronousBySecondsTakesWhatIsGranted) {
  CheckpointSchedule schedule(Settings(0, 10), kSynchronous, 0);
  EXPECT_FALSE(schedule.Step({.now = 1000, .granted = 0, .reach = 16}, 1));
  EXPECT_FALSE(schedule.Step({.now = 1009, .version = 90, .granted = 96, .reach = 112}, 1));
  ASSERT_TRUE(schedule.Step({.now = 1010, .version = 90, .granted = 96, .reach = 112}, 1));
  ExpectLast(schedule, 96, 96);
  EXPECT_TRUE(schedule.Settle(96));
  EXPECT_FALSE(schedule.Step({.now = 1019, .version = 200, .granted = 208, .reach = 224}, 2));
  EXPECT_FALSE(schedule.Step({.now = 1020, .version = 96, .granted = 96, .reach = 112}, 2))
      << "no update since";
  ASSERT_TRUE(schedule.Step({.now = 1021, .version = 96, .granted = 112, .reach = 128}, 2));
  ExpectLast(schedule, 112, 112);
}

// The times at which checkpoints are announced, if updates never stop and each is saved at once.
std::vector<int> TimesOf(double every_seconds, int until) {
  CheckpointSchedule schedule(Settings(0, every_seconds), kAsynchronous, 0);
  std::vector<int> times;
  for (int now = 0; now <= until; ++now) {
    const uint64_t version = now + 1;
    if (!schedule.Step({.now = static_cast<double>(now), .version = version}, 1)) continue;
    times.push_back(now);
    EXPECT_TRUE(schedule.Settle(schedule.last().number));
  }
  return times;
}

TEST(CheckpointScheduleTest, IntervalsDoubleUntilTheyHaveTheirLength) {
  EXPECT_EQ(TimesOf(300, 1300), (std::vector<int>{10, 30, 70, 150, 310, 610, 910, 1210}));
  EXPECT_EQ(TimesOf(15, 60), (std::vector<int>{10, 25, 40, 55}));
  EXPECT_EQ(TimesOf(4, 12), (std::vector<int>{4, 8, 12}));
}

TEST(CheckpointScheduleTest, AsynchronousBySecondsIsTakenAtOnce) {
  CheckpointSchedule schedule(Settings(0, 10), kAsynchronous, 0);
  EXPECT_FALSE(schedule.Step({.now = 1000}, 1));
  ASSERT_TRUE(schedule.Step({.now = 1010, .version = 77}, 1));
  ExpectLast(schedule, 77, 0);
  EXPECT_TRUE(schedule.Settle(77));
  EXPECT_FALSE(schedule.Step({.now = 1020, .version = 77}, 1)) << "no update since";
  ASSERT_TRUE(schedule.Step({.now = 1020, .version = 78}, 1));
  ExpectLast(schedule, 78, 0);
}

TEST(CheckpointScheduleTest, AsynchronousMultiplesAreAnnouncedAhead) {
  CheckpointSchedule schedule(Settings(10, 0), kAsynchronous, 0);
  ASSERT_TRUE(schedule.Step({}, 1));
  ExpectLast(schedule, 10, 10);
  EXPECT_FALSE(schedule.Step({.version = 34}, 2)) << "10 is not saved yet";
  EXPECT_TRUE(schedule.Settle(10));
  ASSERT_TRUE(schedule.Step({.version = 34}, 2));
  ExpectLast(schedule, 40, 40);
}

TEST(CheckpointScheduleTest, AsynchronousMultiplesDoNotKeepSecondsWaiting) {
  CheckpointSchedule schedule(Settings(1000, 10), kAsynchronous, 0);
  EXPECT_FALSE(schedule.Step({.now = 1000}, 1));
  ASSERT_TRUE(schedule.Step({.now = 1010, .version = 70}, 1));
  ExpectLast(schedule, 70, 0);
  EXPECT_TRUE(schedule.Settle(70));
  ASSERT_TRUE(schedule.Step({.now = 1015, .version = 1003}, 2));
  ExpectLast(schedule, 1000, 0);
  EXPECT_TRUE(schedule.Settle(1000));
  EXPECT_FALSE(schedule.Step({.now = 1020, .version = 1100}, 3));
}

TEST(CheckpointScheduleTest, WithoutEitherNoneFallsDue) {
  for (bool synchronous : {false, true}) {
    CheckpointSchedule schedule(Settings(0, 0), synchronous, 0);
    EXPECT_FALSE(schedule.Step({.now = 1000}, 1));
    EXPECT_FALSE(schedule.Step({.now = 1e9, .version = 1000000, .granted = 1000000, .reach = 1000016}, 1));
  }
}

TEST(CheckpointScheduleTest, FailedOneGivesWayToTheNextOnceItsVersionIsReached) {
  CheckpointSchedule schedule(Settings(20, 0), kSynchronous, 0);
  ASSERT_TRUE(schedule.Step({.granted = 16, .reach = 32}, 1));
  EXPECT_FALSE(schedule.Step({.version = 19, .granted = 48, .reach = 64, .failing = true}, 2));
  ASSERT_TRUE(schedule.Step({.version = 20, .granted = 48, .reach = 64, .failing = true}, 2));
  ExpectLast(schedule, 60, 60);
  EXPECT_FALSE(schedule.Settle(20)) << "another one has taken its place";
  EXPECT_TRUE(schedule.Settle(60));
  EXPECT_FALSE(schedule.Settle(60)) << "once";
}

TEST(CheckpointScheduleTest, StatesFromThePendingOneOnAreNeeded) {
  CheckpointSchedule schedule(Settings(20, 0), kSynchronous, 0);
  EXPECT_EQ(schedule.LowestNeeded(16), 16u);
  ASSERT_TRUE(schedule.Step({.granted = 16, .reach = 32}, 1));
  EXPECT_EQ(schedule.LowestNeeded(16), 16u);
  EXPECT_EQ(schedule.LowestNeeded(30), 20u);
  EXPECT_TRUE(schedule.Settle(20));
  EXPECT_EQ(schedule.LowestNeeded(30), 30u);
}

TEST(CheckpointScheduleTest, NumberIsUsedWhereAShardMayHaveAnotherStateUnderIt) {
  CheckpointSchedule synchronous(Settings(20, 0), kSynchronous, 0);
  EXPECT_EQ(synchronous.UsedNumber(0), 0u);
  ASSERT_TRUE(synchronous.Step({.granted = 16, .reach = 32}, 1));
  EXPECT_EQ(synchronous.UsedNumber(19), 0u) << "no shard has taken it";
  EXPECT_EQ(synchronous.UsedNumber(20), 19u) << "it is of this version";
  EXPECT_EQ(synchronous.UsedNumber(21), 20u);
  EXPECT_TRUE(synchronous.Settle(20));
  ASSERT_TRUE(synchronous.Step({.version = 20, .granted = 32, .reach = 48}, 2));
  EXPECT_EQ(synchronous.UsedNumber(20), 19u);
  EXPECT_EQ(synchronous.UsedNumber(39), 20u);

  CheckpointSchedule asynchronous(Settings(20, 0), kAsynchronous, 0);
  ASSERT_TRUE(asynchronous.Step({}, 1));
  EXPECT_EQ(asynchronous.UsedNumber(19), 0u);
  EXPECT_EQ(asynchronous.UsedNumber(20), 20u) << "blocks may have had updates since";
}

}  // namespace
}  // namespace catchment
