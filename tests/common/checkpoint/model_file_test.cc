#include "common/checkpoint/model_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "common/checkpoint/safetensors.h"
#include "tests/common/checkpoint/test_files.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

TEST(WriteModel, HasTheModelsTensorsWithTheirShapesAndTheJob) {
  const auto layout = ParameterLayout::Create({{"dense1.weight", {10, 11}}, {"dense1.bias", {10}}}, 3, 16);
  ASSERT_TRUE(layout.ok()) << layout.status();
  std::vector<float> weights(layout->size());
  std::iota(weights.begin(), weights.end(), 0.0f);
  v1::Job job;
  job.set_name("test");
  const std::string path = FreshDirectory() + "/model.safetensors";
  const absl::Status status = WriteModel(path, job, *layout, weights);
  ASSERT_TRUE(status.ok()) << status;

  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_THAT((*file)->Find("dense1.weight")->shape, ElementsAre(10, 11));
  EXPECT_THAT((*file)->Find("dense1.bias")->shape, ElementsAre(10));
  EXPECT_EQ((*file)->metadata().at("format"), "pt");
  EXPECT_THAT((*file)->metadata().at("catchment.job"), HasSubstr("name: \"test\""));
  std::vector<float> bias(10);
  ASSERT_TRUE((*file)->Read("dense1.bias", 0, 10, bias.data()).ok());
  EXPECT_EQ(bias.front(), 110);
  EXPECT_EQ(bias.back(), 119);
}

TEST(WriteModel, StatisticsOfBatchNormStandBesideTheWeights) {
  const auto layout =
      ParameterLayout::Create({{"batch_norm1.weight", {2}}, {"batch_norm1.bias", {2}}}, 1, 16);
  const std::vector<float> weights(layout->size(), 1.0f);
  ModelFacts facts;
  facts.score.emplace().set_evaluation(1);
  for (const char* name : {"batch_norm1.running_mean", "batch_norm1.running_var"}) {
    facts.statistics.emplace_back().set_name(name);
    facts.statistics.back().add_values(0.5f);
    facts.statistics.back().add_values(facts.statistics.size());
  }
  const std::string path = FreshDirectory() + "/model.safetensors";
  const absl::Status status = WriteModel(path, {}, *layout, weights, facts);
  ASSERT_TRUE(status.ok()) << status;
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  ASSERT_NE((*file)->Find("batch_norm1.running_var"), nullptr);
  EXPECT_THAT((*file)->Find("batch_norm1.running_var")->shape, ElementsAre(2));
  std::vector<float> variance(2);
  ASSERT_TRUE((*file)->Read("batch_norm1.running_var", 0, 2, variance.data()).ok());
  EXPECT_THAT(variance, ElementsAre(0.5f, 2.0f));
  EXPECT_TRUE(ReadModelScore(path, *layout).ok()) << "they are not weights of another model";
}

// Two values each, at the names.
std::vector<v1::Statistic> Statistics(const std::vector<std::string>& names, int values = 2) {
  std::vector<v1::Statistic> statistics(names.size());
  for (size_t i = 0; i < names.size(); ++i) {
    statistics[i].set_name(names[i]);
    for (int value = 0; value < values; ++value) statistics[i].add_values(7);
  }
  return statistics;
}

TEST(WriteModel, NoStatisticHidesAWeight) {
  const auto layout = ParameterLayout::Create({{"n.weight", {2}}, {"n.running_mean", {2}}}, 1, 16);
  const std::vector<float> weights(layout->size(), 1.0f);
  const std::string path = FreshDirectory() + "/model.safetensors";
  ASSERT_TRUE(WriteModel(path, {}, *layout, weights).ok());
  for (const std::vector<std::string>& names :
       {std::vector<std::string>{"n.weight"}, {"n.running_mean"}, {"n.running_var", "n.running_var"}}) {
    const absl::Status status =
        WriteModel(path, {}, *layout, weights, {.score = {}, .statistics = Statistics(names)});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("\"" + names[0] + "\" appears twice; names must be distinct"));
  }
  const auto file = SafetensorsFile::Open(path);
  ASSERT_TRUE(file.ok()) << file.status();
  std::vector<float> values(2);
  ASSERT_TRUE((*file)->Read("n.running_mean", 0, 2, values.data()).ok());
  EXPECT_THAT(values, ElementsAre(1.0f, 1.0f)) << "the file is the one before";
}

TEST(WriteModel, AWeightMayBeNamedLikeAStatistic) {
  const auto layout = ParameterLayout::Create({{"n.weight", {2}}, {"n.running_mean", {2}}}, 1, 16);
  const std::vector<float> weights(layout->size(), 1.0f);
  const std::string path = FreshDirectory() + "/model-best.safetensors";
  ModelFacts facts;
  facts.score.emplace().set_evaluation(3);
  ASSERT_TRUE(WriteModel(path, {}, *layout, weights, facts).ok());
  const auto score = ReadModelScore(path, *layout);
  ASSERT_TRUE(score.ok()) << score.status();
  EXPECT_EQ(score->evaluation(), 3u);
}

std::string StatisticsError(const std::vector<std::string>& names, int values, bool external = false) {
  const std::vector<TensorSpec> tensors = {
      {"n.weight", {2}}, {"n.bias", {2}}, {"d.weight", {2, 3}}, {"p.running_var", {2}}};
  const std::vector<v1::Statistic> statistics = Statistics(names, values);
  std::vector<const v1::Statistic*> all;
  for (const v1::Statistic& one : statistics) all.push_back(&one);
  const absl::Status status = CheckStatistics(tensors, external, all);
  EXPECT_TRUE(status.ok() || absl::IsInvalidArgument(status)) << status;
  return std::string(status.message());
}

TEST(CheckStatistics, RefusesWhatDoesNotBelongBesideTheWeights) {
  EXPECT_EQ(StatisticsError({}, 2), "");
  EXPECT_EQ(StatisticsError({"n.running_mean", "n.running_var"}, 2), "");
  EXPECT_EQ(StatisticsError({"n.weight"}, 2),
            "statistic \"n.weight\" is a weight of the model; rename the parameter, "
            "because a statistic must not replace it");
  EXPECT_THAT(StatisticsError({"p.running_var"}, 2), HasSubstr("is a weight of the model"));
  for (const char* name :
       {"", "x", "n.running_means", "running_mean", "__metadata__", "n.running_mean.weight"})
    EXPECT_THAT(StatisticsError({name}, 2), HasSubstr("is not a statistic; names end with .running_mean or"));
  EXPECT_EQ(StatisticsError({"n.running_mean", "n.running_var", "n.running_mean"}, 2),
            "statistic \"n.running_mean\" is reported twice");
  for (const int values : {0, 1, 3}) {
    EXPECT_THAT(StatisticsError({"n.running_var"}, values),
                HasSubstr(" values, and n.weight is 2; they must be equal"));
  }
  EXPECT_THAT(StatisticsError({"d.running_mean"}, 6), HasSubstr("d.weight is 2x3"));
}

TEST(CheckStatistics, OnlyAProgramMayHaveLayersWithoutWeights) {
  EXPECT_EQ(StatisticsError({"other.running_mean"}, 5),
            "statistic \"other.running_mean\" belongs to no layer: the model has no tensor other.weight");
  EXPECT_EQ(StatisticsError({"other.running_mean"}, 5, /*external=*/true), "");
  EXPECT_THAT(StatisticsError({"n.running_mean"}, 5, /*external=*/true), HasSubstr("must be equal"));
}

TEST(WriteModel, TheScoreIsReadBackExactly) {
  const auto layout = ParameterLayout::Create({{"dense1.weight", {2, 2}}, {"dense1.bias", {2}}}, 1, 16);
  const std::vector<float> weights(layout->size(), 1.0f);
  const std::string path = FreshDirectory() + "/model-best.safetensors";
  EXPECT_TRUE(absl::IsNotFound(ReadModelScore(path, *layout).status())) << "no file";
  ASSERT_TRUE(WriteModel(path, {}, *layout, weights).ok());
  EXPECT_TRUE(absl::IsNotFound(ReadModelScore(path, *layout).status())) << "no score";
  v1::BestState score;
  score.set_evaluation(7);
  score.set_samples(1ull << 40);
  score.set_loss(1.0 / 3);
  score.set_accuracy(0.1);
  ASSERT_TRUE(WriteModel(path, {}, *layout, weights, {.score = score, .statistics = {}}).ok());
  const auto read = ReadModelScore(path, *layout);
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(read->evaluation(), 7u);
  EXPECT_EQ(read->samples(), 1ull << 40);
  EXPECT_EQ(read->loss(), 1.0 / 3);
  EXPECT_EQ(read->accuracy(), 0.1);
  const auto other = ParameterLayout::Create({{"dense1.weight", {3, 2}}, {"dense1.bias", {3}}}, 1, 16);
  EXPECT_THAT(
      std::string(ReadModelScore(path, *other).status().message()),
      HasSubstr("belongs to a different model: tensor 0: expected dense1.weight 3x2, got dense1.weight 2x2"));
}

}  // namespace
}  // namespace catchment
