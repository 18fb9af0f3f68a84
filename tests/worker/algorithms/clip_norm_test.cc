#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "worker/algorithms/gradient_transform.h"

namespace catchment {
namespace {

std::vector<float> Clipped(float max_norm, std::vector<float> g) {
  ClipNorm(max_norm, absl::MakeSpan(g));
  return g;
}

TEST(ClipNormTest, ScalesToTheNormAsPyTorchDoes) {
  // The norm is 5: times 1 / 5.000001.
  const std::vector<float> g = Clipped(1, {3, 0, -4});
  EXPECT_FLOAT_EQ(g[0], 0.59999988f);
  EXPECT_EQ(g[1], 0);
  EXPECT_FLOAT_EQ(g[2], -0.79999984f);
}

TEST(ClipNormTest, LeavesAShortGradientAsItIs) {
  EXPECT_EQ(Clipped(5.5f, {3, 4}), (std::vector<float>{3, 4}));
  EXPECT_EQ(Clipped(1, {0, 0}), (std::vector<float>{0, 0}));
}

TEST(ClipNormTest, GradientOfJustThatNormIsScaledByPyTorchsMillionth) {
  EXPECT_LT(Clipped(5, {3, 4})[0], 3);
  EXPECT_GT(Clipped(5, {3, 4})[0], 2.999998f);
  // It counts where the norm is a millionth itself: 1 / (1 + 1).
  EXPECT_FLOAT_EQ(Clipped(1e-6f, {6e-7f, 8e-7f})[0], 3e-7f);
}

TEST(ClipNormTest, ManySmallComponentsBesideALargeOneCount) {
  // In single precision each of the ones is lost: 2^24 + 1 = 2^24.
  std::vector<float> g(1 + (1 << 20), 1.0f);
  g[0] = 4096;
  const double norm = std::sqrt(16777216.0 + 1048576.0);
  EXPECT_FLOAT_EQ(Clipped(1, g)[0], static_cast<float>(4096 / norm));
}

TEST(ClipNormTest, EveryComponentCountsWhateverTheLength) {
  for (size_t n = 1; n <= 40; ++n) {
    for (size_t at = 0; at < n; ++at) {
      std::vector<float> g(n, 0.0f);
      g[at] = 10;
      EXPECT_NEAR(Clipped(2, g)[at], 2, 1e-6) << n << " values, at " << at;
    }
  }
}

TEST(ClipNormTest, OneNanMakesAllOfItNan) {
  for (const float value : Clipped(1, {1, std::nanf(""), 2})) EXPECT_TRUE(std::isnan(value));
}

TEST(ClipNormTest, InfinityLeavesZerosAndANan) {
  const std::vector<float> g = Clipped(1, {1, std::numeric_limits<float>::infinity()});
  EXPECT_EQ(g[0], 0);
  EXPECT_TRUE(std::isnan(g[1]));
}

}  // namespace
}  // namespace catchment
