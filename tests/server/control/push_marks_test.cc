#include "server/control/push_marks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using Change = PushMarks::Change;

v1::PushMark MarkOf(uint32_t worker, uint64_t incarnation, uint64_t settled) {
  v1::PushMark mark;
  mark.set_worker(worker);
  mark.set_incarnation(incarnation);
  mark.set_answered_steps(settled);
  mark.set_settled_steps(settled);
  mark.set_begun_steps(settled);
  return mark;
}

v1::ShardReport ReportOf(uint32_t shard, const std::vector<v1::PushMark>& marks) {
  v1::ShardReport report;
  report.set_shard(shard);
  for (const v1::PushMark& mark : marks) *report.add_marks() = mark;
  return report;
}

TEST(PushMarksTest, SaysWhichWorkersAllShardsHaveSettledMoreOf) {
  PushMarks marks(2);
  marks.Update(ReportOf(0, {MarkOf(0, 5, 0), MarkOf(1, 6, 0)}));
  marks.Update(ReportOf(1, {MarkOf(0, 5, 0), MarkOf(1, 6, 0)}));
  EXPECT_THAT(marks.Update(ReportOf(0, {MarkOf(0, 5, 3), MarkOf(1, 6, 0)})), IsEmpty())
      << "shard 1 has settled none";
  EXPECT_THAT(marks.Update(ReportOf(1, {MarkOf(0, 5, 2), MarkOf(1, 6, 7)})), ElementsAre(Change{5, 2}));
  EXPECT_THAT(marks.Update(ReportOf(1, {MarkOf(0, 5, 2), MarkOf(1, 6, 7)})), IsEmpty()) << "the same again";
  EXPECT_THAT(marks.Update(ReportOf(1, {MarkOf(0, 5, 9), MarkOf(1, 6, 8)})), ElementsAre(Change{5, 3}));
  EXPECT_THAT(marks.Update(ReportOf(0, {MarkOf(0, 5, 4), MarkOf(1, 6, 8)})),
              ElementsAre(Change{5, 4}, Change{6, 8}));
}

TEST(PushMarksTest, AnotherWorkerWithTheIndexBeginsAtNothing) {
  PushMarks marks(2);
  for (uint32_t shard : {0, 1}) marks.Update(ReportOf(shard, {MarkOf(0, 5, 3)}));
  marks.Update(ReportOf(0, {MarkOf(0, 8, 3)}));
  EXPECT_EQ(marks.Of(0, 8).settled, 0u) << "shard 1 does not know it";
  EXPECT_THAT(marks.Update(ReportOf(1, {MarkOf(0, 8, 1)})), ElementsAre(Change{8, 1}));
}

TEST(PushMarksTest, AShardThatIsForgottenHoldsUpItsWorkers) {
  PushMarks marks(2);
  for (uint32_t shard : {0, 1}) marks.Update(ReportOf(shard, {MarkOf(0, 5, 3)}));
  marks.Forget(1);
  EXPECT_EQ(marks.Of(0, 5).settled, 0u);
  marks.Update(ReportOf(0, {MarkOf(0, 5, 6)}));
  EXPECT_THAT(marks.Update(ReportOf(1, {MarkOf(0, 5, 4)})), ElementsAre(Change{5, 4}));
}

// Whoever only follows what Update returns knows as much as who asks for each worker after each report.
TEST(PushMarksTest, ChangesAddUpToTheLowestOfAllShards) {
  constexpr int kShards = 4, kWorkers = 5;
  std::mt19937 random(7);
  PushMarks marks(kShards);
  uint64_t settled[kShards][kWorkers] = {};
  uint64_t known[kWorkers] = {};
  for (int report = 0; report < 2000; ++report) {
    const uint32_t shard = random() % kShards;
    std::vector<v1::PushMark> reported;
    for (uint32_t w = 0; w < kWorkers; ++w) {
      reported.push_back(MarkOf(w, 10 + w, settled[shard][w] += random() % 3));
    }
    for (const PushMarks::Change& change : marks.Update(ReportOf(shard, reported))) {
      known[change.incarnation - 10] = change.settled;
    }
    for (uint32_t w = 0; w < kWorkers; ++w) {
      uint64_t lowest = UINT64_MAX;
      for (const auto& of_shard : settled) lowest = std::min(lowest, of_shard[w]);
      ASSERT_EQ(known[w], lowest) << "report " << report;
    }
  }
}

}  // namespace
}  // namespace catchment
