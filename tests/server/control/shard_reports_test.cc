#include "server/control/shard_reports.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

namespace catchment {
namespace {

// All staleness that the last reports have, added up anew.
StalenessDistribution Recompute(const ShardReports& board, std::optional<uint32_t> worker) {
  StalenessDistribution sum;
  for (const auto& report : board.reports()) {
    if (!report) continue;
    for (const v1::WorkerStatistics& statistics : report->workers()) {
      if (!worker || statistics.worker() == *worker) sum.Add(statistics);
    }
  }
  return sum;
}

void ExpectSame(const StalenessDistribution& actual, const StalenessDistribution& expected,
                const std::string& what) {
  EXPECT_EQ(actual.count(), expected.count()) << what;
  EXPECT_EQ(actual.mean(), expected.mean()) << what;
  EXPECT_EQ(actual.max(), expected.max()) << what;
  for (const double share : {0.01, 0.3, 0.5, 0.7, 0.99}) {
    EXPECT_EQ(actual.quantile(share), expected.quantile(share)) << what << ", quantile " << share;
  }
}

v1::WorkerStatistics StatisticsOf(uint32_t worker, const std::map<uint64_t, uint64_t>& counts) {
  v1::WorkerStatistics statistics;
  statistics.set_worker(worker);
  for (const auto& [value, count] : counts) {
    statistics.add_staleness_values(value);
    statistics.add_staleness_counts(count);
  }
  return statistics;
}

class RandomBoard {
 public:
  static constexpr uint32_t kShards = 3, kWorkers = 6;

  explicit RandomBoard(unsigned seed) : random_(seed) {}

  // One report of a random shard: pushes of some workers since the one before, a worker more, a worker that
  // has no statistics any more, another order, or another process at the shard's place.
  void Step() {
    const uint32_t shard = Draw(kShards);
    std::map<uint32_t, std::map<uint64_t, uint64_t>>& counts = counts_[shard];
    switch (Draw(10)) {
      case 0:
        counts.erase(Draw(kWorkers));
        break;
      case 1:
        counts.clear();
        versions_[shard] = 0;
        board.Forget(shard);
        break;
      default:
        for (uint32_t i = Draw(8); i > 0; --i) counts[Draw(kWorkers)][Draw(20)] += 1 + Draw(3);
    }
    v1::ShardReport report;
    report.set_shard(shard);
    report.set_version(versions_[shard]++);
    for (const auto& [worker, of_worker] : counts) *report.add_workers() = StatisticsOf(worker, of_worker);
    if (Draw(5) == 0)
      std::shuffle(report.mutable_workers()->begin(), report.mutable_workers()->end(), random_);
    ASSERT_TRUE(board.Update(report).ok());
  }

  ShardReports board{kShards};

 private:
  uint32_t Draw(uint32_t below) { return std::uniform_int_distribution<uint32_t>(0, below - 1)(random_); }

  std::mt19937 random_;
  std::map<uint32_t, std::map<uint32_t, std::map<uint64_t, uint64_t>>>
      counts_;  // by shard, worker, staleness
  std::map<uint32_t, uint64_t> versions_;
};

TEST(ShardReports, RefusesTheIndexOfAWorkerThatNoJobHas) {
  ShardReports board(1);
  v1::ShardReport report;
  report.add_marks()->set_worker(9999);
  EXPECT_TRUE(board.Update(report).ok());
  report.add_marks()->set_worker(10000);
  const absl::Status status = board.Update(report);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "server 0 reports worker 10000; their indexes are below 10000");
}

TEST(ShardReportsTest, SumsAreThoseOfTheLastReportsAfterAnySequenceOfReports) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    RandomBoard random(seed);
    for (int step = 0; step < 100; ++step) {
      ASSERT_NO_FATAL_FAILURE(random.Step());
      const std::string when = "seed " + std::to_string(seed) + ", step " + std::to_string(step);
      ExpectSame(random.board.staleness(), Recompute(random.board, std::nullopt), when);
      for (uint32_t worker = 0; worker <= RandomBoard::kWorkers; ++worker) {
        ExpectSame(random.board.StalenessOf(worker), Recompute(random.board, worker),
                   when + ", worker " + std::to_string(worker));
      }
      ASSERT_FALSE(testing::Test::HasFailure());
    }
  }
}

TEST(ShardReportsTest, StatisticsThatAReportLeavesOutStayAndMarksAreNotKept) {
  ShardReports board(1);
  v1::ShardReport report;
  report.set_version(1);
  *report.add_workers() = StatisticsOf(0, {{2, 3}});
  report.add_marks()->set_worker(0);
  report.mutable_quorum()->set_by_all(7);
  ASSERT_TRUE(board.Update(report).ok());
  v1::ShardReport later;
  later.set_version(5);
  later.set_without_statistics(true);
  later.add_marks()->set_worker(0);
  for (int i = 0; i < 2; ++i) {
    ASSERT_TRUE(board.Update(later).ok());
    v1::ShardReport expected = report;
    expected.set_version(5);
    expected.clear_marks();
    EXPECT_EQ(board.reports()[0]->DebugString(), expected.DebugString());
    EXPECT_EQ(board.staleness().count(), 3u);
  }
  later.set_without_statistics(false);
  ASSERT_TRUE(board.Update(later).ok());
  EXPECT_EQ(board.reports()[0]->workers_size(), 0);
  EXPECT_FALSE(board.reports()[0]->has_quorum());
  EXPECT_EQ(board.staleness().count(), 0u);
}

TEST(ShardReportsTest, ARefusedReportChangesNothing) {
  ShardReports board(1);
  v1::ShardReport report;
  report.set_version(5);
  *report.add_workers() = StatisticsOf(0, {{2, 10}});
  ASSERT_TRUE(board.Update(report).ok());
  report.set_version(4);
  *report.mutable_workers(0) = StatisticsOf(0, {{9, 1}});
  EXPECT_EQ(board.Update(report).code(), absl::StatusCode::kFailedPrecondition);
  report.set_shard(1);
  EXPECT_EQ(board.Update(report).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(board.staleness().count(), 10u);
  EXPECT_EQ(board.StalenessOf(0).max(), 2);
}

}  // namespace
}  // namespace catchment
