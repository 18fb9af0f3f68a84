// Tests the schema that docs/compare.md describes.

#include "cli/report/report.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/cli/report/made_comparison.h"

namespace catchment {
namespace {

using Json = nlohmann::ordered_json;
using ::testing::ElementsAre;

Json Made() {
  const Comparison comparison = MadeComparison();
  return ReportJson(comparison, Find(comparison));
}

std::vector<std::string> Keys(const Json& object) {
  std::vector<std::string> keys;
  for (const auto& [key, value] : object.items()) keys.push_back(key);
  return keys;
}

TEST(ReportJson, KeysOfTheWhole) {
  EXPECT_THAT(Keys(Made()),
              ElementsAre("schema", "command", "version", "job_name", "budget", "stragglers", "servers",
                          "threads", "seeds", "workers", "machine", "simulated", "algorithms", "target",
                          "answer", "duels", "standings", "runs", "left_out", "search", "job"));
  EXPECT_EQ(Made()["schema"], 2);
}

TEST(ReportJson, KeysOfARun) {
  EXPECT_THAT(
      Keys(Made()["runs"][0]),
      ElementsAre("algorithm", "workers", "seed", "directory", "done", "diverged", "reason", "device",
                  "wall_seconds", "samples", "updates", "samples_per_second", "test_accuracy", "test_loss",
                  "seconds_to_target", "samples_to_target", "staleness", "worker_seconds", "goodput",
                  "uptime", "bytes_pushed", "bytes_pulled", "momentum", "series"));
}

TEST(ReportJson, ValuesOfARun) {
  const Json run = Made()["runs"][2];  // sync, 4 workers, seed 1: 8.1 seconds to 98.01 %
  EXPECT_EQ(run["algorithm"], "sync");
  EXPECT_NEAR(run["seconds_to_target"].get<double>(), 8.1 * 0.98 / 0.9801, 1e-9);
  EXPECT_EQ(run["staleness"]["counts"], Json::parse("[[0, 1], [2, 1]]"));
  EXPECT_EQ(run["momentum"], Json::parse(R"({"given": 0.9, "implicit": 0.5})"));
  EXPECT_EQ(run["series"].size(), 2u);
  EXPECT_EQ(run["series"][1]["samples"], 1000);
}

TEST(ReportJson, TargetThatWasNotReachedIsNull) {
  const Json report = Made();
  EXPECT_TRUE(report["runs"][3]["seconds_to_target"].is_null()) << "downpour ends with 96 %";
  EXPECT_EQ(report["answer"]["first"], "sync");
  EXPECT_TRUE(report["answer"]["second"].is_null());
  EXPECT_NEAR(report["target"]["test_accuracy"].get<double>(), 0.98, 1e-9);
}

TEST(ReportJson, AnswerHasTheRatioBehindItsWords) {
  Comparison comparison = MadeComparison();
  comparison.wanted_target = 0.96;
  const Json answer = ReportJson(comparison, Find(comparison))["answer"];
  EXPECT_THAT(Keys(answer), ElementsAre("sentence", "where_synchronous_wins", "workers", "first", "second",
                                        "second_over_first", "synchronous_over_first"));
  EXPECT_EQ(answer["first"], "downpour");
  EXPECT_EQ(answer["second"], "sync");
  EXPECT_TRUE(answer["second_over_first"]["beyond_noise"].get<bool>());
}

TEST(ReportJson, EachRowHasItsLearningRateAndTheCostOfItsSearch) {
  Comparison comparison = MadeComparison();
  AddSearch(&comparison);
  const Json report = ReportJson(comparison, Find(comparison));
  for (const Json& row : report["standings"]) {
    EXPECT_EQ(row["learning_rate"], 0.05);
    EXPECT_EQ(row["momentum"], 0.9);
    if (row["algorithm"] == "downpour" && row["workers"] == 4) {
      EXPECT_NEAR(row["search_cost"].get<double>(), 3 * 0.1 + 2 * 0.3, 1e-12);
    } else {
      EXPECT_TRUE(row["search_cost"].is_null()) << row;
    }
  }
  ASSERT_EQ(report["search"].size(), 5u);
  EXPECT_THAT(Keys(report["search"][0]),
              ElementsAre("algorithm", "workers", "seed", "rung", "share", "learning_rate", "momentum",
                          "directory", "done", "diverged", "reason", "test_accuracy", "test_loss", "chosen"));
  EXPECT_EQ(report["search"][0]["diverged"], true);
  EXPECT_EQ(report["search"][4]["chosen"], true);
  EXPECT_EQ(report["search"][4]["seed"], 4);
}

TEST(ReportJson, ARunThatFailedIsThereWithItsReason) {
  Comparison comparison = MadeComparison();
  comparison.runs[0].done = false;
  comparison.runs[0].reason = "a gradient with a NaN";
  const Json report = ReportJson(comparison, Find(comparison));
  EXPECT_EQ(report["runs"][0]["done"], false);
  EXPECT_EQ(report["runs"][0]["reason"], "a gradient with a NaN");
  EXPECT_EQ(report["standings"].size(), 4u);
}

}  // namespace
}  // namespace catchment
