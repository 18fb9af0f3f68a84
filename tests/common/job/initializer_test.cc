#include "common/job/initializer.h"

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

struct Moments {
  double mean = 0, deviation = 0, largest = 0;
};

// Returns the moments of weight and bias of a convolution with 64 filters of 9 x 3 x 3: fan-in 81, fan-out
// 576.
std::pair<Moments, Moments> OfConvolution(v1::Initializer initializer) {
  v1::Model model;
  v1::Conv2d* conv = model.add_layers()->mutable_conv2d();
  conv->set_filters(64);
  conv->set_kernel_size(3);
  conv->set_initializer(initializer);
  model.add_layers()->mutable_global_average_pool();
  const auto layers = InferShapes(model, {9, 3, 3}, 64);
  EXPECT_TRUE(layers.ok()) << layers.status();
  constexpr int64_t kWeights = 64 * 81;
  std::vector<float> values(kWeights + 64);
  InitializeParameters(*layers, 3, {0, kWeights + 64}, values.data());
  const auto of = [&](int64_t begin, int64_t end) {
    Moments moments;
    for (int64_t i = begin; i < end; ++i) {
      moments.mean += values[i] / static_cast<double>(end - begin);
      moments.deviation += static_cast<double>(values[i]) * values[i] / static_cast<double>(end - begin);
      moments.largest = std::max(moments.largest, std::fabs(static_cast<double>(values[i])));
    }
    moments.deviation = std::sqrt(moments.deviation);
    return moments;
  };
  return {of(0, kWeights), of(kWeights, kWeights + 64)};
}

TEST(Initializer, VariancesAreThoseOfThePapers) {
  struct Case {
    v1::Initializer initializer;
    double variance;
    bool uniform;
  };
  for (const Case& c :
       {Case{v1::DEFAULT_UNIFORM, 1.0 / (3 * 81), true}, Case{v1::KAIMING_NORMAL, 2.0 / 81, false},
        Case{v1::KAIMING_UNIFORM, 2.0 / 81, true}, Case{v1::KAIMING_NORMAL_FAN_OUT, 2.0 / 576, false},
        Case{v1::XAVIER_NORMAL, 2.0 / 657, false}, Case{v1::XAVIER_UNIFORM, 2.0 / 657, true}}) {
    const auto [weight, bias] = OfConvolution(c.initializer);
    const double deviation = std::sqrt(c.variance);
    EXPECT_NEAR(weight.deviation / deviation, 1, 0.03) << c.initializer;  // 5184 values
    EXPECT_NEAR(weight.mean / deviation, 0, 0.07) << c.initializer;
    if (c.uniform) {
      EXPECT_LT(weight.largest, std::sqrt(3) * deviation) << c.initializer;
      EXPECT_GT(weight.largest, 0.99 * std::sqrt(3) * deviation) << c.initializer;
    } else {
      EXPECT_GT(weight.largest, 3 * deviation) << c.initializer;
    }
    EXPECT_EQ(bias.largest == 0, c.initializer != v1::DEFAULT_UNIFORM) << c.initializer;
  }
}

TEST(Initializer, NormsBeginAsTheyAreToldAndLstmsByTheirUnits) {
  v1::Model model;
  model.add_layers()->mutable_lstm()->set_units(16);
  model.add_layers()->mutable_batch_norm()->set_initial_weight(0.25f);
  model.add_layers()->mutable_layer_norm();
  const auto layers = *InferShapes(model, SampleShape::Sequence(2, 100), 16);
  std::vector<float> values(CountParameters(layers));
  InitializeParameters(layers, 3, {0, CountParameters(layers)}, values.data());
  const int64_t norms = CountParameters(layers) - 64;
  float largest = 0;
  for (int64_t i = 0; i < norms; ++i) largest = std::max(largest, std::fabs(values[i]));
  EXPECT_NEAR(largest, 0.25, 0.002);  // 1 / sqrt(16)
  for (int64_t i = 0; i < 64; ++i) {
    const float expected[] = {0.25f, 0, 1, 0};
    EXPECT_EQ(values[norms + i], expected[i / 16]) << i;
  }
}

TEST(Initializer, SeedsAndTensorsDiffer) {
  EXPECT_NE(Fill(7, {0, 100}), Fill(8, {0, 100}));
  const std::vector<float> values = Fill(7, {0, 30300});
  EXPECT_FALSE(std::equal(values.begin() + 30000, values.end(), values.begin()));
}

}  // namespace
}  // namespace catchment
