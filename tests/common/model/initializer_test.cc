#include "common/initializer.h"

#include <cmath>

#include "gtest/gtest.h"

namespace catchment {
namespace {

std::vector<LayerShape> TwoDenseLayers() {
  v1::Model model;
  model.add_layers()->mutable_dense()->set_units(300);
  model.add_layers()->mutable_dense()->set_units(10);
  return *InferShapes(model, SampleShape::Vector(100), 10);
}

std::vector<float> Fill(uint64_t seed, Range range) {
  std::vector<float> out(range.size());
  InitializeParameters(TwoDenseLayers(), seed, range, out.data());
  return out;
}

const int64_t kSize = 300 * 100 + 300 + 10 * 300 + 10;

TEST(Initializer, AnySplitGivesTheSameWeights) {
  const std::vector<float> whole = Fill(7, {0, kSize});
  for (int64_t step : {1, 16, 999, 30100}) {
    for (int64_t begin = 0; begin < kSize; begin += step) {
      const Range range = {begin, std::min(kSize, begin + step)};
      const std::vector<float> part = Fill(7, range);
      ASSERT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + begin)) << begin << " by " << step;
    }
  }
}

TEST(Initializer, ValuesAreUniformWithinPyTorchsBound) {
  const std::vector<float> values = Fill(7, {0, 30000});  // dense1.weight, fan-in 100
  double sum = 0, squares = 0;
  float largest = 0;
  for (float value : values) {
    sum += value;
    squares += value * value;
    largest = std::max(largest, std::fabs(value));
  }
  EXPECT_LT(largest, 0.1f);
  EXPECT_GT(largest, 0.0999f);
  EXPECT_NEAR(sum / 30000, 0, 5 * 0.1 / std::sqrt(3 * 30000.0));
  EXPECT_NEAR(squares / 30000, 0.01 / 3, 1e-4);  // a uniform's variance is bound^2 / 3
}

TEST(Initializer, BoundFollowsEachLayersFanIn) {
  const std::vector<float> bias1 = Fill(7, {30000, 30300});
  const std::vector<float> weight2 = Fill(7, {30300, 33300});
  float largest1 = 0, largest2 = 0;
  for (float value : bias1) largest1 = std::max(largest1, std::fabs(value));
  for (float value : weight2) largest2 = std::max(largest2, std::fabs(value));
  EXPECT_NEAR(largest1, 0.1, 0.003);
  EXPECT_NEAR(largest2, 1 / std::sqrt(300.0), 0.0003);
}

TEST(Initializer, SeedsAndTensorsDiffer) {
  EXPECT_NE(Fill(7, {0, 100}), Fill(8, {0, 100}));
  const std::vector<float> values = Fill(7, {0, 30300});
  EXPECT_FALSE(std::equal(values.begin() + 30000, values.end(), values.begin()));
}

}  // namespace
}  // namespace catchment
