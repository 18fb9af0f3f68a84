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
  EXPECT_TRUE(ReadModelScore(path, *layout).ok()) << "they are no weights of another model";
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
