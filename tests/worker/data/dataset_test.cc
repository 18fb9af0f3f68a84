#include "worker/data/dataset.h"

#include <gtest/gtest.h>

namespace catchment {
namespace {

TEST(DatasetTest, KnowsItsShapeCountsAndLabels) {
  const Dataset data({1, 2, 3}, 7, {}, std::vector<uint8_t>(12), {6, 2});
  EXPECT_EQ(data.input_shape(), (SampleShape{1, 2, 3}));
  EXPECT_EQ(data.num_classes(), 7);
  EXPECT_EQ(data.size(), 2);
  EXPECT_EQ(data.label(0), 6);
  EXPECT_EQ(data.label(1), 2);
}

TEST(DatasetTest, CopiesTheChosenSample) {
  const Dataset data({2, 1, 2}, 2, {}, {0, 0, 0, 0, 255, 51, 0, 102}, {0, 1});
  float out[5] = {9, 9, 9, 9, 9};
  data.CopyInput(1, out);
  EXPECT_FLOAT_EQ(out[0], 1);
  EXPECT_FLOAT_EQ(out[1], 0.2f);
  EXPECT_FLOAT_EQ(out[2], 0);
  EXPECT_FLOAT_EQ(out[3], 0.4f);
  EXPECT_EQ(out[4], 9) << "wrote past the sample";
}

TEST(DatasetTest, NormalisesEveryPixelValue) {
  std::vector<uint8_t> pixels(256);
  for (int i = 0; i < 256; ++i) pixels[i] = i;
  const Dataset data({1, 16, 16}, 1, {0.1307f, 0.3081f}, pixels, {0});
  float out[256];
  data.CopyInput(0, out);
  for (int i = 0; i < 256; ++i) EXPECT_NEAR(out[i], (i / 255.0 - 0.1307) / 0.3081, 1e-6) << "pixel " << i;
}

TEST(DatasetTest, SamplesWithoutContentAreOnlyCounted) {
  const Dataset data = Dataset::WithoutContent(4'000'000'000);
  EXPECT_EQ(data.size(), 4'000'000'000);
  EXPECT_FALSE(data.has_content());
  EXPECT_EQ(data.input_shape().size(), 0);
  EXPECT_TRUE(Dataset({1, 1, 1}, 1, {}, {0}, {0}).has_content());
}

TEST(DatasetDeathTest, RefusesPixelsThatDoNotMatchTheLabels) {
  EXPECT_DEATH(Dataset({1, 2, 2}, 2, {}, std::vector<uint8_t>(7), {0, 1}), "7 vs. 8");
}

TEST(DatasetDeathTest, RefusesALabelThatIsNotAClass) {
  EXPECT_DEATH(Dataset({1, 1, 1}, 2, {}, {0}, {2}), "label");
}

DataSets SetsOf(std::vector<uint8_t> pixels, const std::vector<uint8_t>& labels) {
  Dataset train({1, 1, 2}, 3, {0, 1}, std::move(pixels), labels);
  Dataset test({1, 1, 2}, 3, {0, 1}, {1, 2}, {0});
  return {std::move(train), std::move(test)};
}

TEST(DataChecksum, TellsDataThatDifferInSizeValuesOrClasses) {
  const uint64_t checksum = DataChecksum(SetsOf({1, 2, 3, 4}, {0, 1}));
  EXPECT_NE(checksum, 0u);
  EXPECT_EQ(DataChecksum(SetsOf({1, 2, 3, 4}, {0, 1})), checksum);
  EXPECT_NE(DataChecksum(SetsOf({1, 2, 3, 5}, {0, 1})), checksum);
  EXPECT_NE(DataChecksum(SetsOf({3, 4, 1, 2}, {0, 1})), checksum) << "another order";
  EXPECT_NE(DataChecksum(SetsOf({1, 2, 3, 4}, {0, 2})), checksum);
  EXPECT_NE(DataChecksum(SetsOf({1, 2, 3, 4, 1, 2}, {0, 1, 0})), checksum);
  EXPECT_NE(DataChecksum({Dataset::WithoutContent(5), Dataset::WithoutContent(1)}),
            DataChecksum({Dataset::WithoutContent(6), Dataset::WithoutContent(1)}));
}

}  // namespace
}  // namespace catchment
