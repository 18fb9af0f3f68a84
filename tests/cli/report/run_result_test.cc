#include "cli/report/run_result.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

constexpr char kMetrics[] =
    R"({"wall_seconds": 1, "test_accuracy": null}
{"test_accuracy": 0.5, "test_loss": 1.5, "tested_at_samples": 100, "tested_at_seconds": 1, "wall_seconds": 1.4}
{"test_accuracy": 0.5, "test_loss": 1.5, "tested_at_samples": 100, "tested_at_seconds": 1, "wall_seconds": 2.4}
{"test_accuracy": 0.9, "test_loss": 0.5, "tested_at_samples": 300, "tested_at_seconds": 3, "wall_seconds": 3.2}
{"test_accuracy": 0.8, "test_loss": 0.7, "tested_at_samples": 400, "tested_at_seconds": 4, "wall_seconds": 4.2}
{"test_accuracy": 0.95, "test_lo)";

RunResult Read() {
  RunResult result;
  ReadResult(nlohmann::json::parse(
                 R"({"wall_seconds": 5, "samples": 500, "test_accuracy": 0.9, "test_loss": null,
                     "staleness_mean": 0.75, "staleness_counts": [[0, 3], [3, 1]]})"),
             kMetrics, &result);
  return result;
}

TEST(ReadResult, ScoresAreOfTheMomentOfTheirWeightsAndOnce) {
  const RunResult result = Read();
  ASSERT_EQ(result.scores.size(), 3u);
  EXPECT_EQ(result.scores[1].seconds, 3);
  EXPECT_EQ(result.scores[1].samples, 300);
  EXPECT_EQ(result.scores[1].accuracy, 0.9);
  EXPECT_EQ(BestAccuracy(result), 0.9);
}

TEST(ReadResult, ValuesThatWereNotMeasuredAreAbsent) {
  const RunResult result = Read();
  EXPECT_EQ(result.seconds, 5);
  EXPECT_EQ(result.accuracy, 0.9);
  EXPECT_FALSE(result.loss.has_value());
  EXPECT_EQ(result.staleness, (std::map<uint64_t, uint64_t>{{0, 3}, {3, 1}}));
}

TEST(FirstReached, LiesOnTheLineBetweenTwoScores) {
  const auto crossing = FirstReached(Read().scores, 0.8);  // three quarters of the way from 0.5 to 0.9
  ASSERT_TRUE(crossing.has_value());
  EXPECT_NEAR(crossing->seconds, 2.5, 1e-9);
  EXPECT_NEAR(crossing->samples, 250, 1e-9);
}

TEST(FirstReached, BeforeTheFirstScoreNothingIsKnown) {
  EXPECT_EQ(FirstReached(Read().scores, 0.4)->seconds, 1);
  EXPECT_FALSE(FirstReached(Read().scores, 0.91).has_value());
}

}  // namespace
}  // namespace catchment
