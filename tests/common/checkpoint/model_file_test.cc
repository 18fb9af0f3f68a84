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

}  // namespace
}  // namespace catchment
