#include "simulation/models.h"

#include <gtest/gtest.h>

#include <cmath>

namespace catchment {
namespace {

TEST(ModelsTest, ParsesTimesWithAUnit) {
  EXPECT_DOUBLE_EQ(*ParseDuration("120ms"), 0.12);
  EXPECT_DOUBLE_EQ(*ParseDuration("50us"), 50e-6);
  EXPECT_DOUBLE_EQ(*ParseDuration("1.5s"), 1.5);
  EXPECT_DOUBLE_EQ(*ParseDuration("2h"), 7200);
  for (const char* text : {"", "120", "ms", "-1s", "1e3", "1 s", "nan", "1..2s"}) {
    EXPECT_FALSE(ParseDuration(text).ok()) << text;
  }
}

TEST(ModelsTest, ParsesAndPrintsDistributions) {
  for (const char* text : {"constant:120ms", "lognormal:120ms:0.3", "exponential:0.5ms", "gamma:120ms:4"}) {
    const absl::StatusOr<Distribution> distribution = ParseDistribution(text);
    ASSERT_TRUE(distribution.ok()) << text << ": " << distribution.status();
    EXPECT_EQ(ToString(*distribution), text);
  }
}

TEST(ModelsTest, RefusesADistributionWithTheAcceptedForms) {
  for (const char* text :
       {"", "120ms", "lognormal", "lognormal:120ms", "lognormal:120ms:-1", "lognormal:120ms:x",
        "constant:0ms", "constant:120ms:1", "gamma:120ms:0", "normal:120ms:1", "exponential:120"}) {
    const absl::StatusOr<Distribution> distribution = ParseDistribution(text);
    ASSERT_FALSE(distribution.ok()) << text;
    for (const char* form :
         {"constant:MEAN", "lognormal:MEAN:SIGMA", "exponential:MEAN", "gamma:MEAN:SHAPE"}) {
      EXPECT_NE(distribution.status().message().find(form), std::string::npos) << text << " " << form;
    }
  }
}

TEST(ModelsTest, SamplesHaveTheMeanAndTheSpreadOfTheirDistribution) {
  struct Case {
    const char* text;
    double mean;
    double deviation;
  };
  const double lognormal = 0.12 * std::sqrt(std::exp(0.3 * 0.3) - 1);
  for (const Case& one : {Case{"constant:120ms", 0.12, 0}, Case{"lognormal:120ms:0.3", 0.12, lognormal},
                          Case{"exponential:120ms", 0.12, 0.12}, Case{"gamma:120ms:4", 0.12, 0.06},
                          Case{"gamma:120ms:0.5", 0.12, 0.12 * std::sqrt(2.0)}}) {
    const Distribution distribution = *ParseDistribution(one.text);
    Random random(1);
    constexpr int kSamples = 200'000;
    double sum = 0, squares = 0;
    for (int i = 0; i < kSamples; ++i) {
      const double sample = distribution.Sample(&random);
      ASSERT_GE(sample, 0);
      sum += sample;
      squares += sample * sample;
    }
    const double mean = sum / kSamples;
    EXPECT_NEAR(mean, one.mean, 0.01 * one.mean) << one.text;
    EXPECT_NEAR(std::sqrt(std::max(0.0, squares / kSamples - mean * mean)), one.deviation, 0.02 * one.mean)
        << one.text;
  }
}

TEST(ModelsTest, ParsesANetwork) {
  const NetworkModel network = *ParseNetwork("10Gbit:50us");
  EXPECT_DOUBLE_EQ(network.bytes_per_second, 1.25e9);
  EXPECT_DOUBLE_EQ(network.latency, 50e-6);
  EXPECT_EQ(ToString(network), "10Gbit:50us");
  EXPECT_EQ(ParseNetwork("unlimited:0us")->bytes_per_second, 0);
  for (const char* text :
       {"", "10Gbit", "10:50us", "10GB:50us", "0Gbit:50us", "10Gbit:50", "10Gbit:50us:1"}) {
    const absl::StatusOr<NetworkModel> refused = ParseNetwork(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.status().message().find("BANDWIDTH:LATENCY"), std::string::npos) << text;
  }
}

TEST(ModelsTest, ParsesStragglers) {
  EXPECT_EQ(*ParseStraggler("3:10x")->worker, 3u);
  EXPECT_DOUBLE_EQ(ParseStraggler("1%:10x")->share, 0.01);
  EXPECT_FALSE(ParseStraggler("1%:10x")->of_steps);
  EXPECT_TRUE(ParseStraggler("0.5%steps:2x")->of_steps);
  for (const char* text : {"", "3", "3:10", "3:0.5x", "x:10x", "101%:2x", "0%:2x", "-1:2x", "1%step:2x"}) {
    const absl::StatusOr<StragglerModel> refused = ParseStraggler(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.status().message().find("SHARE%:TIMESx"), std::string::npos) << text;
  }
}

TEST(ModelsTest, MakesAShareOfTheWorkersSlow) {
  v1::Job job;
  job.set_workers(256);
  SetStragglers(*ParseStraggler("1%:10x"), &job);
  ASSERT_EQ(job.faults().stragglers_size(), 3);
  EXPECT_EQ(job.faults().stragglers(0).worker(), 255u);
  EXPECT_EQ(job.faults().stragglers(0).slowdown_factor(), 10);
  v1::Job small;
  small.set_workers(4);
  SetStragglers(*ParseStraggler("1%:10x"), &small);
  SetStragglers(*ParseStraggler("4:10x"), &small);
  EXPECT_EQ(small.faults().stragglers_size(), 0);
}

TEST(ModelsTest, ParsesFailuresAndQuadratics) {
  EXPECT_EQ(ParseFailures("2h:30s")->mean_seconds, 7200);
  EXPECT_EQ(ParseFailures("2h:30s")->away_seconds, 30);
  EXPECT_FALSE(ParseFailures("2h:30s")->hangs);
  EXPECT_TRUE(ParseFailures("2h:30s:hang")->hangs);
  for (const char* text : {"", "2h", "0s:1s", "2h:x", "2h:30s:", "2h:30s:hangs", "2h:30s:hang:"})
    EXPECT_FALSE(ParseFailures(text).ok()) << text;
  EXPECT_EQ(ParseQuadratic("quadratic:100:0.1")->condition, 100);
  for (const char* text : {"", "quadratic", "quadratic:0.5:0", "quadratic:10:-1", "cubic:10:1"}) {
    EXPECT_FALSE(ParseQuadratic(text).ok()) << text;
  }
}

}  // namespace
}  // namespace catchment
