#include <algorithm>

#include "cli/live/status_text.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kSummary[] = R"({
  "algorithm": "downpour", "servers": 2, "workers": 1, "device": "cpu", "epochs": 5, "samples": 300000,
  "updates": 4688, "wall_seconds": 156.2, "samples_per_second": 1920.6, "test_accuracy": 0.9905,
  "test_loss": 0.03121, "staleness_mean": 0.98, "staleness_p50": 1, "staleness_p99": 2, "staleness_max": 5,
  "pushes_applied": 4688, "pushes_late": 0, "pushes_non_finite": 0, "pushes_duplicate": 1,
  "compute_seconds": 280.25, "push_seconds": 0.5, "pull_seconds": 25, "data_seconds": 6.75,
  "round_trip_p50_us": 2261.5, "round_trip_p99_us": 10763,
  "bytes_pushed": 22500000000, "bytes_pulled": 900, "phase": "DONE", "reason": ""})";

TEST(SummaryTableTest, HasEverythingWithUnits) {
  const auto summary = nlohmann::json::parse(kSummary);
  EXPECT_EQ(SummaryTable(summary),
            "  test accuracy  99.05 %\n"
            "  test loss      0.03121\n"
            "  outcome        done\n"
            "  algorithm      downpour\n"
            "  processes      2 servers, 1 worker\n"
            "  device         cpu\n"
            "  trained        5 epochs, 300,000 samples, 4,688 updates\n"
            "  time           2 min 36 s, 1,921 samples/s\n"
            "  workers' time  89.7 % computing, 0.2 % waiting to push, 8.0 % for weights, 2.2 % for data\n"
            "  round trip     p50 2.26 ms, p99 10.8 ms\n"
            "  staleness      mean 0.98, p50 1, p99 2, max 5 updates\n"
            "  pushes         4,688 applied, 0 late, 0 not finite, 1 duplicate\n"
            "  on the wire    22.5 GB pushed, 900 B pulled\n");
}

TEST(ResultTableTest, HasTheScoreAndTheOutcomeFirst) {
  auto summary = nlohmann::json::parse(kSummary);
  EXPECT_EQ(ResultTable(summary, {{"weights", "out/model.safetensors"}}),
            "  test       accuracy 99.05 %, loss 0.03121\n"
            "  outcome    done\n"
            "  trained    5 epochs, 300,000 samples, 4,688 updates\n"
            "  time       2 min 36 s, 1,921 samples/s\n"
            "  staleness  mean 0.98, p50 1, p99 2, max 5 updates\n"
            "  weights    out/model.safetensors\n");
  for (const char* key : {"staleness_mean", "staleness_p50", "staleness_p99", "staleness_max"})
    summary[key] = 0;
  EXPECT_THAT(ResultTable(summary, {}), Not(HasSubstr("staleness")));
  summary["best_test_accuracy"] = 0.9905;
  summary["best_at_samples"] = 300000;
  EXPECT_THAT(ResultTable(summary, {}), Not(HasSubstr("best")));
  summary["best_test_accuracy"] = 0.992;
  EXPECT_THAT(ResultTable(summary, {}), HasSubstr("loss 0.03121, best 99.20 % after 300,000 samples\n"));
}

TEST(SummaryTableTest, LeavesOutFieldsThatAreMissingOrOfAnotherType) {
  const auto summary = nlohmann::json::parse(
      R"({"test_accuracy": null, "workers": 2, "reason": "SIGINT", "phase": "STOPPED"})");
  EXPECT_EQ(SummaryTable(summary), "  outcome    stopped, SIGINT\n  processes  2 workers\n");
}

TEST(SummaryTableTest, LeavesOutTimesThatAreZero) {
  const auto summary = nlohmann::json::parse(
      R"({"compute_seconds": 0, "push_seconds": 0, "pull_seconds": 0, "data_seconds": 0, "workers": 2,
          "round_trip_p50_us": null, "round_trip_p99_us": null})");
  EXPECT_EQ(SummaryTable(summary), "  processes  2 workers\n");
}

TEST(SummaryTableTest, SaysWhatRecoveriesHaveCost) {
  auto summary = nlohmann::json::parse(kSummary);
  summary["recoveries"] = 0;
  summary["updates_computed_again"] = 0;
  EXPECT_THAT(SummaryTable(summary), Not(HasSubstr("recovered")));
  summary["recoveries"] = 2;
  summary["updates_computed_again"] = 1210;
  EXPECT_THAT(SummaryTable(summary), HasSubstr("recovered      2 times, 1,210 updates computed again\n"));
}

TEST(SummaryTableTest, SaysWhichEvaluationWasBestAndWhyItEnded) {
  const auto summary = nlohmann::json::parse(R"({"best_evaluation": 7, "best_test_loss": 0.0612,
      "best_test_accuracy": 0.9812, "best_at_samples": 42000, "phase": "DONE", "reason": "",
      "ended_early": "test accuracy 0.9812 reached evaluation.target_accuracy 0.98"})");
  EXPECT_EQ(SummaryTable(summary),
            "  outcome          done, test accuracy 0.9812 reached evaluation.target_accuracy 0.98\n"
            "  best evaluation  7, test accuracy 98.12 %, test loss 0.0612, after 42,000 samples\n");
}

TEST(SummaryTableTest, HasStalenessInTimeAndImplicitMomentum) {
  const auto summary =
      nlohmann::json::parse(R"({"staleness_seconds_p50": 0.0123, "staleness_seconds_p90": 0.25,
      "staleness_seconds_max": 75, "gap_mean": 0.00123456, "gap_max": 0.01, "momentum": 0.45,
      "implicit_momentum": 0.4499, "pushes_applied": 90, "pushes_waiting": 8})");
  EXPECT_EQ(SummaryTable(summary),
            "  in time   p50 12.3 ms, p90 250 ms, max 1 min 15 s\n"
            "  gap       mean 0.001235, max 0.01\n"
            "  momentum  0.45 set, 0.4499 from asynchrony\n"
            "  pushes    90 applied, 8 waiting\n");
}

TEST(SummaryTableTest, SaysWhatEndedTheUpdatesOfAQuorum) {
  const auto summary = nlohmann::json::parse(
      R"({"algorithm": "decoupled_diloco", "pushes_applied": 40, "pushes_split": 2, "merged_mean": 3.25,
      "closed_by_all": 1200, "closed_by_grace": 30, "closed_by_loss": 4})");
  EXPECT_EQ(
      SummaryTable(summary),
      "  algorithm  decoupled_diloco\n"
      "  pushes     40 applied, 2 late in part\n"
      "  quorum     3.25 contributions in an update, closed by all 1,200, by the grace 30, by a loss 4\n");
}

TEST(WorkerTableTest, HasARowForEachWorker) {
  const auto summary = nlohmann::json::parse(R"({"per_worker": [
      {"worker": 0, "pushes_applied": 4688, "pushes_waiting": 0, "pushes_late": 3, "pushes_split": 2, "pushes_non_finite": 1,
       "pushes_duplicate": 0, "staleness_p50": 1, "staleness_p90": 2, "staleness_max": 5,
       "staleness_seconds_p50": 0.0123, "staleness_seconds_p90": 0.25, "staleness_seconds_max": 2.5,
       "gap_mean": 0.00123456, "gap_max": 0.01},
      {"worker": 1, "pushes_applied": 12, "staleness_p50": 0, "staleness_p90": 0, "staleness_max": 0,
       "staleness_seconds_p50": null, "gap_mean": null}]})");
  EXPECT_EQ(WorkerTable(summary),
            "  worker  applied                           not applied  staleness p50 / p90 / max"
            "                   in time   gap mean / max\n"
            "       0    4,688  3 late, 1 not finite, 2 late in part                  1 / 2 / 5"
            "  12.3 ms / 250 ms / 2.5 s  0.001235 / 0.01\n"
            "       1       12                                                        0 / 0 / 0\n");
}

TEST(WorkerTableTest, ShowsTheFirstAndTheLastOfMany) {
  nlohmann::json summary;
  for (int w = 0; w < 60; ++w) summary["per_worker"].push_back({{"worker", w}});
  const std::string table = WorkerTable(summary);
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 1 + 8 + 1 + 8);
  for (const char* shown : {"  7  ", "  52  ", "  59  "}) EXPECT_THAT(table, HasSubstr(shown));
  for (const char* left_out : {"  8  ", "  51  "}) EXPECT_THAT(table, Not(HasSubstr(left_out)));
  EXPECT_EQ(WorkerTable(nlohmann::json::object()), "");
}

}  // namespace
}  // namespace catchment
