#include "server/control/checkpoint_tracker.h"

#include <gtest/gtest.h>

#include <map>

namespace catchment {
namespace {

v1::ShardReport Saved(uint32_t shard, const std::vector<uint64_t>& numbers) {
  v1::ShardReport report;
  report.set_shard(shard);
  for (uint64_t number : numbers) {
    v1::SavedShard* saved = report.add_saved();
    saved->set_checkpoint(number);
    saved->set_version(number + shard);
  }
  return report;
}

TEST(CheckpointTrackerTest, IsWholeWhenTheLastShardHasSaved) {
  CheckpointTracker tracker(2);
  tracker.Observe(Saved(0, {}));
  tracker.Observe(Saved(1, {}));
  EXPECT_TRUE(tracker.Observe(Saved(0, {10})).empty());
  EXPECT_FALSE(tracker.AllSaved(10));
  const auto saved = tracker.Observe(Saved(1, {10}));
  ASSERT_EQ(saved.size(), 1u);
  EXPECT_EQ(saved[0].number, 10u);
  ASSERT_EQ(saved[0].shards.size(), 2u);
  EXPECT_EQ(saved[0].shards[1].version(), 11u);
  EXPECT_EQ(tracker.recorded(), 0u);
  tracker.SetRecorded(10);
  EXPECT_EQ(tracker.recorded(), 10u);
}

TEST(CheckpointTrackerTest, ReturnsEachOnceAndInOrder) {
  CheckpointTracker tracker(2);
  tracker.Observe(Saved(0, {}));
  tracker.Observe(Saved(1, {}));
  tracker.Observe(Saved(0, {10, 20, 30}));
  const auto saved = tracker.Observe(Saved(1, {20, 10}));
  ASSERT_EQ(saved.size(), 2u);
  EXPECT_EQ(saved[0].number, 10u);
  EXPECT_EQ(saved[1].number, 20u);
  EXPECT_TRUE(tracker.Observe(Saved(1, {10, 20})).empty());
  EXPECT_EQ(tracker.Observe(Saved(1, {20, 30})).size(), 1u);
}

TEST(CheckpointTrackerTest, ThoseOfAnEarlierRunAreNotNew) {
  CheckpointTracker tracker(2);
  EXPECT_TRUE(tracker.Observe(Saved(0, {10, 20})).empty());
  EXPECT_TRUE(tracker.Observe(Saved(1, {10, 20})).empty());
  EXPECT_TRUE(tracker.AllSaved(20));
  EXPECT_EQ(tracker.recorded(), 20u);
  EXPECT_EQ(tracker.earlier(), 20u);
  tracker.Observe(Saved(0, {20, 30}));
  EXPECT_EQ(tracker.Observe(Saved(1, {20, 30})).size(), 1u);
}

TEST(CutOfTest, HoldsTheStepsThatEveryShardHadSettled) {
  CheckpointTracker::Saved saved{7, {}};
  const auto add_shard = [&saved](uint64_t version, const std::map<uint64_t, uint64_t>& steps) {
    v1::SavedShard& shard = saved.shards.emplace_back();
    shard.set_version(version);
    for (const auto& [incarnation, settled] : steps) {
      shard.add_incarnations(incarnation);
      shard.add_settled_steps(settled);
      shard.add_begun_steps(settled + 1);
    }
  };
  add_shard(40, {{11, 5}, {13, 8}});
  add_shard(42, {{11, 6}, {13, 7}, {14, 2}});
  const Cut cut = CutOf(saved);
  EXPECT_EQ(cut.version, 42u);
  EXPECT_EQ(cut.settled_steps(11), 5u);
  EXPECT_EQ(cut.settled_steps(13), 7u);
  EXPECT_EQ(cut.settled_steps(14), 0u) << "shard 0 had not heard of it yet";
  EXPECT_EQ(cut.settled_steps(12), UINT64_MAX) << "its index has gone to another worker";
  EXPECT_EQ(cut.settled_steps(20), 0u);
  EXPECT_EQ(cut.begun_steps(11), 7u);
  EXPECT_EQ(cut.begun_steps(13), 9u);
  EXPECT_EQ(cut.begun_steps(14), 3u) << "of shard 1";
  EXPECT_EQ(cut.begun_steps(20), 0u);
}

TEST(CutOfTest, IncarnationsWithoutStepsAreNotThere) {
  CheckpointTracker::Saved saved{7, {}};
  v1::SavedShard& shard = saved.shards.emplace_back();
  shard.add_incarnations(11);
  shard.add_settled_steps(5);
  for (uint64_t incarnation = 12; incarnation < 1000; ++incarnation) shard.add_incarnations(incarnation);
  const Cut cut = CutOf(saved);
  EXPECT_EQ(cut.settled_steps(11), 5u);
  EXPECT_EQ(cut.settled_steps(500), 0u);
}

}  // namespace
}  // namespace catchment
