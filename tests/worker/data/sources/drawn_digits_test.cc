#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iostream>
#include <memory>
#include <numeric>

#include "common/base/random.h"
#include "worker/data/sources/digit_drawing.h"
#include "worker/data/sources/load_data.h"

namespace catchment {
namespace {

constexpr int kPixels = kDrawnSize * kDrawnSize;
using Image = std::vector<float>;

DataSets Draw(uint32_t train, uint32_t test, uint64_t seed = 1) {
  v1::DrawnDigits options;
  options.set_train_samples(train);
  options.set_test_samples(test);
  options.set_seed(seed);
  absl::StatusOr<DataSets> data = DrawDigits(options);
  EXPECT_TRUE(data.ok()) << data.status();
  return *std::move(data);
}

Image ImageOf(const Dataset& data, int64_t index) {
  Image image(kPixels);
  data.CopyInput(index, image.data());
  return image;
}

TEST(DigitDrawingTest, DrawsTheSamePixelsOnEveryMachine) {
  // A hash of one drawing of each digit. It changes only when the drawing is changed on purpose; jobs that
  // were compared on drawn digits are then no longer comparable.
  uint64_t hash = 0;
  for (int digit = 0; digit < 10; ++digit) {
    Random random(Derive(1, digit));
    uint8_t pixels[kPixels];
    DrawDigit(digit, &random, pixels);
    for (uint8_t pixel : pixels) hash = Derive(hash, pixel);
  }
  EXPECT_EQ(hash, 2529399792761358769u);
}

TEST(DigitDrawingTest, EveryWayToWriteADigitLeavesInkInTheMiddleAndPaperAtTheEdge) {
  for (int digit = 0; digit < 10; ++digit) {
    for (int i = 0; i < 50; ++i) {
      Random random(Derive(digit, i));
      uint8_t pixels[kPixels];
      DrawDigit(digit, &random, pixels);
      const int64_t dark = std::count_if(pixels, pixels + kPixels, [](uint8_t p) { return p > 128; });
      const int64_t edge = std::count_if(pixels, pixels + kDrawnSize, [](uint8_t p) { return p > 128; });
      EXPECT_GT(dark, 15) << "digit " << digit << ", drawing " << i;
      EXPECT_LT(dark, kPixels / 3) << "digit " << digit << ", drawing " << i;
      EXPECT_LT(edge, 10) << "digit " << digit << ", drawing " << i;
    }
  }
}

TEST(DigitGlyphsTest, SeveralDigitsAreWrittenInSeveralWays) {
  EXPECT_GE(GlyphsOf(1).size(), 3u);
  EXPECT_GE(GlyphsOf(4).size(), 3u);
  EXPECT_GE(GlyphsOf(7).size(), 3u);
}

TEST(DrawnDigitsTest, FillsInItsDefaults) {
  const absl::StatusOr<DataSets> data = DrawDigits({});
  ASSERT_TRUE(data.ok()) << data.status();
  EXPECT_EQ(data->train.size(), 20000);
  EXPECT_EQ(data->test.size(), 4000);
  EXPECT_EQ(data->train.input_shape(), (SampleShape{1, 28, 28}));
  EXPECT_EQ(data->train.num_classes(), 10);
  EXPECT_EQ(ImageOf(data->train, 7), ImageOf(Draw(8, 1, 1).train, 7)) << "the default seed is 1";
}

TEST(DrawnDigitsTest, ASampleDependsOnSeedAndIndexAlone) {
  const DataSets small = Draw(20, 10), large = Draw(50, 40);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(ImageOf(small.train, i), ImageOf(large.train, i)) << i;
    EXPECT_EQ(small.train.label(i), large.train.label(i)) << i;
  }
  for (int i = 0; i < 10; ++i) EXPECT_EQ(ImageOf(small.test, i), ImageOf(large.test, i)) << i;
}

TEST(DrawnDigitsTest, NoTwoSamplesAreTheSame) {
  const DataSets data = Draw(500, 500), other = Draw(500, 500, 2);
  std::vector<Image> images;
  for (const Dataset* set : {&data.train, &data.test, &other.train, &other.test}) {
    for (int i = 0; i < 500; ++i) images.push_back(ImageOf(*set, i));
  }
  std::sort(images.begin(), images.end());
  EXPECT_EQ(std::adjacent_find(images.begin(), images.end()), images.end());
}

TEST(DrawnDigitsTest, ClassesAreAboutEquallyFrequent) {
  const DataSets data = Draw(10000, 1);
  std::array<int, 10> counts = {};
  for (int i = 0; i < 10000; ++i) ++counts[data.train.label(i)];
  // Five standard deviations of a count are 150.
  EXPECT_THAT(counts, testing::Each(testing::AllOf(testing::Gt(850), testing::Lt(1150))));
}

TEST(DrawnDigitsTest, IsNormalisedToMeanZeroAndDeviationOne) {
  const DataSets data = Draw(5000, 1);
  double sum = 0, squares = 0;
  for (int i = 0; i < 5000; ++i) {
    for (float value : ImageOf(data.train, i)) sum += value, squares += value * value;
  }
  EXPECT_NEAR(sum / (5000.0 * kPixels), 0, 0.02);
  EXPECT_NEAR(squares / (5000.0 * kPixels), 1, 0.03);
}

TEST(DrawnDigitsTest, RefusesNoneAndTooMany) {
  v1::DrawnDigits options;
  options.set_train_samples(0);
  EXPECT_EQ(DrawDigits(options).status().message(),
            "data.drawn_digits.train_samples is 0; use 1 to 10000000");
  options.set_train_samples(1);
  options.set_test_samples(10'000'001);
  const absl::Status status = DrawDigits(options).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "data.drawn_digits.test_samples is 10000001; use 1 to 10000000");
}

// Softmax regression: logits = W x + b, trained with plain SGD, one sample at a time.
class LinearModel {
 public:
  // One pass over the data.
  void Train(const Dataset& data, float learning_rate) {
    Image input(kPixels);
    for (int64_t i = 0; i < data.size(); ++i) {
      data.CopyInput(i, input.data());
      std::array<float, 10> gradient = Probabilities(input);
      gradient[data.label(i)] -= 1;
      for (int c = 0; c < 10; ++c) {
        const float step = learning_rate * gradient[c];
        for (int j = 0; j < kPixels; ++j) weights_[c][j] -= step * input[j];
        biases_[c] -= step;
      }
    }
  }

  double Accuracy(const Dataset& data) const {
    int64_t right = 0;
    for (int64_t i = 0; i < data.size(); ++i) {
      const std::array<float, 10> p = Probabilities(ImageOf(data, i));
      right += std::max_element(p.begin(), p.end()) - p.begin() == data.label(i);
    }
    return static_cast<double>(right) / static_cast<double>(data.size());
  }

 private:
  std::array<float, 10> Probabilities(const Image& input) const {
    std::array<float, 10> p = biases_;
    for (int c = 0; c < 10; ++c)
      p[c] = std::inner_product(input.begin(), input.end(), weights_[c].begin(), p[c]);
    const float largest = *std::max_element(p.begin(), p.end());
    float sum = 0;
    for (float& value : p) sum += value = std::exp(value - largest);
    for (float& value : p) value /= sum;
    return p;
  }

  std::array<std::array<float, kPixels>, 10> weights_ = {};
  std::array<float, 10> biases_ = {};
};

TEST(DrawnDigitsTest, ALinearModelLearnsThemButStaysBelow95Percent) {
  const DataSets data = Draw(20000, 4000);
  auto model = std::make_unique<LinearModel>();
  double best = 0;
  for (float learning_rate : {1e-3f, 1e-3f, 5e-4f, 5e-4f, 2e-4f, 1e-4f, 5e-5f, 2e-5f}) {
    model->Train(data.train, learning_rate);
    best = std::max(best, model->Accuracy(data.test));
  }
  std::cout << "best test accuracy of a linear model: " << best << "\n";
  EXPECT_LT(best, 0.95);
  EXPECT_GT(best, 0.6) << "pictures and labels do not belong together";
}

}  // namespace
}  // namespace catchment
