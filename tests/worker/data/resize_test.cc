#include "worker/data/resize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "common/checkpoint/safetensors_header.h"

namespace catchment {
namespace {

std::vector<uint8_t> Image(int64_t width, int64_t height) {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < height; ++y)
    for (int64_t x = 0; x < width; ++x)
      for (int64_t c = 0; c < 3; ++c) pixels.push_back(static_cast<uint8_t>(x * 7 + y * 13 + c * 50 + x * y));
  return pixels;
}

std::vector<uint8_t> Resized(int64_t width, int64_t height, const ResizedPart& part) {
  const std::vector<uint8_t> image = Image(width, height);
  Resizer resizer(part);
  EXPECT_LE(resizer.rows(), height);
  for (int64_t y = 0; y < resizer.rows(); ++y) resizer.AddRow(y, image.data() + y * width * 3);
  return resizer.Finish();
}

uint32_t ChecksumOf(const std::vector<uint8_t>& values) { return Crc32(values.data(), values.size()); }

// The checksums are of the same images, resized and cropped in Python by Pillow 13.0 with Image.BILINEAR and
// the arithmetic of torchvision's Resize and CenterCrop.
TEST(ResizerTest, ComputesPillowsValues) {
  EXPECT_EQ(ChecksumOf(Resized(500, 375, {{0, 500, 224, 0, 224}, {0, 375, 224, 0, 224}})), 0x9ee608d9u);
  EXPECT_EQ(ChecksumOf(Resized(500, 375, CenterOf(500, 375, 256, 224))), 0x5c0f643au);
  EXPECT_EQ(ChecksumOf(Resized(375, 500, CenterOf(375, 500, 256, 224))), 0x9fd83e6fu);
  EXPECT_EQ(ChecksumOf(Resized(33, 47, CenterOf(33, 47, 256, 224))), 0xf5494aa5u) << "enlarged";
  EXPECT_EQ(ChecksumOf(Resized(501, 233, CenterOf(501, 233, 37, 32))), 0x4bc9383eu);
  EXPECT_EQ(ChecksumOf(Resized(7, 5, {{1, 5, 4, 0, 4}, {0, 5, 3, 0, 3}})), 0x81d08d7au);
}

// By the definition, in double precision and without rounding between the directions.
TEST(ResizerTest, IsAMeanOverWhatAPixelCovers) {
  constexpr int64_t kWidth = 90, kHeight = 70;
  const std::vector<uint8_t> image = Image(kWidth, kHeight);
  const ResizedPart part = {{11, 60, 24, 3, 17}, {5, 33, 50, 20, 29}};
  const auto weight = [](const ResizedRange& range, int64_t pixel, int64_t from) {
    const double scale = static_cast<double>(range.length) / static_cast<double>(range.resized);
    const double center = (static_cast<double>(range.first + pixel) + 0.5) * scale;
    return std::max(0.0, 1 - std::abs(static_cast<double>(from) + 0.5 - center) / std::max(1.0, scale));
  };
  const std::vector<uint8_t> resized = Resized(kWidth, kHeight, part);
  ASSERT_EQ(static_cast<int64_t>(resized.size()), part.x.size * part.y.size * 3);
  for (int64_t y = 0; y < part.y.size; ++y) {
    for (int64_t x = 0; x < part.x.size; ++x) {
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0, weights = 0;
        for (int64_t i = 0; i < part.y.length; ++i) {
          for (int64_t j = 0; j < part.x.length; ++j) {
            const double w = weight(part.y, y, i) * weight(part.x, x, j);
            sum += w * image[((part.y.begin + i) * kWidth + part.x.begin + j) * 3 + c];
            weights += w;
          }
        }
        ASSERT_NEAR(resized[(y * part.x.size + x) * 3 + c], sum / weights, 1.01) << y << " " << x << " " << c;
      }
    }
  }
}

TEST(ResizerTest, AnImageOfTheSizeStaysAsItIs) {
  EXPECT_EQ(Resized(32, 32, CenterOf(32, 32, 32, 32)), Image(32, 32));
}

TEST(ResizerTest, ReadsNoRowsBelowThePart) {
  EXPECT_EQ(Resizer({{0, 10, 10, 0, 10}, {3, 4, 4, 0, 4}}).rows(), 7);
  EXPECT_LT(Resizer(CenterOf(100, 1000, 32, 32)).rows(), 600);
}

TEST(PartTest, TheCenterIsWhereTorchvisionPutsIt) {
  const ResizedPart part = CenterOf(500, 375, 256, 224);
  EXPECT_EQ(part.x.resized, 341);
  EXPECT_EQ(part.x.first, 58) << "58.5, rounded to even";
  EXPECT_EQ(part.y.resized, 256);
  EXPECT_EQ(part.y.first, 16);
  EXPECT_EQ(CenterOf(375, 500, 256, 224).y.first, 58);
  EXPECT_EQ(CenterOf(1, 60000, 8, 8).y.resized, 480000);
}

v1::RandomResizedCrop Crop(float min_scale = 0.08f, float max_scale = 1, float min_ratio = 0.75f,
                           float max_ratio = 4.0f / 3) {
  v1::RandomResizedCrop crop;
  crop.set_min_scale(min_scale);
  crop.set_max_scale(max_scale);
  crop.set_min_ratio(min_ratio);
  crop.set_max_ratio(max_ratio);
  return crop;
}

TEST(PartTest, RandomPartsHaveTheScaleAndRatioThatAreAsked) {
  constexpr int kParts = 20'000;
  constexpr int64_t kWidth = 400, kHeight = 300;
  double area = 0, log_ratio = 0, left = 0, top = 0;
  std::set<std::tuple<int64_t, int64_t, int64_t, int64_t>> parts;
  for (int i = 0; i < kParts; ++i) {
    Random random(i);
    const ResizedPart part = RandomPart(kWidth, kHeight, Crop(0.08f, 0.3f), 24, &random);
    const auto w = static_cast<double>(part.x.length), h = static_cast<double>(part.y.length);
    ASSERT_GE(part.x.begin, 0);
    ASSERT_GE(part.y.begin, 0);
    ASSERT_LE(part.x.begin + part.x.length, kWidth);
    ASSERT_LE(part.y.begin + part.y.length, kHeight);
    ASSERT_EQ(part.x.resized, 24);
    ASSERT_EQ(part.x.size, 24);
    ASSERT_GT(w / h, 0.72);
    ASSERT_LT(w / h, 1.38);
    area += w * h / (kWidth * kHeight);
    log_ratio += std::log(w / h);
    left += static_cast<double>(part.x.begin) / (kWidth - w);
    top += static_cast<double>(part.y.begin) / (kHeight - h);
    parts.emplace(part.x.begin, part.x.length, part.y.begin, part.y.length);
  }
  // Uniform distributions: their standard errors are below 0.0005, 0.0012 and 0.0021.
  EXPECT_NEAR(area / kParts, 0.19, 0.003);
  EXPECT_NEAR(log_ratio / kParts, 0, 0.008);
  EXPECT_NEAR(left / kParts, 0.5, 0.012);
  EXPECT_NEAR(top / kParts, 0.5, 0.012);
  EXPECT_GT(parts.size(), size_t{kParts} * 9 / 10);
}

TEST(PartTest, AnImageThatIsTooLongIsCutInTheMiddle) {
  Random random(1);
  ResizedPart part = RandomPart(1000, 10, Crop(0.9f), 8, &random);
  EXPECT_EQ(part.x.begin, (1000 - 13) / 2);
  EXPECT_EQ(part.x.length, 13);
  EXPECT_EQ(part.y.begin, 0);
  EXPECT_EQ(part.y.length, 10);
  part = RandomPart(10, 1000, Crop(0.9f), 8, &random);
  EXPECT_EQ(part.x.length, 10);
  EXPECT_EQ(part.y.begin, (1000 - 13) / 2);
  EXPECT_EQ(part.y.length, 13);
  part = RandomPart(1, 1, Crop(0.01f, 0.02f), 8, &random);
  EXPECT_EQ(part.x.length, 1);
  EXPECT_EQ(part.y.length, 1);
}

TEST(PartTest, FollowsFromTheSeed) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random one(seed), same(seed), other(seed + 1000);
    const ResizedPart part = RandomPart(640, 480, Crop(), 24, &one);
    const ResizedPart again = RandomPart(640, 480, Crop(), 24, &same);
    const ResizedPart different = RandomPart(640, 480, Crop(), 24, &other);
    EXPECT_EQ(std::tie(part.x.begin, part.x.length, part.y.begin, part.y.length),
              std::tie(again.x.begin, again.x.length, again.y.begin, again.y.length));
    EXPECT_NE(std::tie(part.x.begin, part.x.length, part.y.begin, part.y.length),
              std::tie(different.x.begin, different.x.length, different.y.begin, different.y.length));
  }
}

}  // namespace
}  // namespace catchment
