#include "simulation/models.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

TEST(ModelsTest, SamplesHaveTheMeanAndTheSpreadOfTheirDistribution) {
  struct Case {
    Distribution distribution;
    double mean;
    double deviation;
  };
  const double lognormal = 0.12 * std::sqrt(std::exp(0.3 * 0.3) - 1);
  for (const Case& one : {Case{{Distribution::kConstant, 0.12}, 0.12, 0},
                          Case{{Distribution::kLogNormal, 0.12, 0.3}, 0.12, lognormal},
                          Case{{Distribution::kExponential, 0.12}, 0.12, 0.12},
                          Case{{Distribution::kGamma, 0.12, 4}, 0.12, 0.06},
                          Case{{Distribution::kGamma, 0.12, 0.5}, 0.12, 0.12 * std::sqrt(2.0)}}) {
    Random random(1);
    constexpr int kSamples = 200'000;
    double sum = 0, squares = 0;
    for (int i = 0; i < kSamples; ++i) {
      const double sample = one.distribution.Sample(&random);
      ASSERT_GE(sample, 0);
      sum += sample;
      squares += sample * sample;
    }
    const double mean = sum / kSamples;
    EXPECT_NEAR(mean, one.mean, 0.01 * one.mean) << one.distribution.kind;
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / kSamples - mean * mean)), one.deviation, 0.02 * one.mean)
        << one.distribution.kind;
  }
}

}  // namespace
}  // namespace catchment
