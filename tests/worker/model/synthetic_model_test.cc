#include "worker/model/synthetic_model.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::DoubleNear;
using ::testing::Pointwise;

constexpr int64_t kParameters = 140003;
constexpr int kLayers = 8;
constexpr double kStep = 0.1;  // seconds

// Time passes only while a thread sleeps, or as the test says.
class FakeTimer final : public Timer {
 public:
  explicit FakeTimer(double oversleep) : oversleep_(oversleep) {}
  double Now() const override { return now_; }
  void SleepUntil(double time) override {
    if (time > now_) now_ = time + oversleep_;
  }
  void Pass(double seconds) { now_ += seconds; }

 private:
  const double oversleep_;
  double now_ = 1000;
};

struct Follower final : PassObserver {
  void BeforeForward(Range range) override { before(range); }
  void AfterBackward(Range range) override { after(range); }
  std::function<void(Range)> before = [](Range) {};
  std::function<void(Range)> after = [](Range) {};
};

class SyntheticModelTest : public testing::Test {
 protected:
  void Make(double spread = 0, uint64_t seed = 1, double oversleep = 0) {
    v1::Model model;
    model.mutable_synthetic()->set_parameters(kParameters);
    model.mutable_synthetic()->set_step_ms(1000 * kStep);
    model.mutable_synthetic()->set_spread(spread);
    auto timer = std::make_unique<FakeTimer>(oversleep);
    timer_ = timer.get();
    model_ = std::make_unique<SyntheticModel>(
        model.synthetic(), *InferShapes(model, SampleShape::Vector(1), 1), seed, std::move(timer));
  }

  // The seconds that it takes.
  double Train(uint64_t name = 0) {
    const double start = timer_->Now();
    score_ = model_->Train(weights_, {nullptr, nullptr, &name, 7}, absl::MakeSpan(gradient_), &follower_);
    return timer_->Now() - start;
  }

  FakeTimer* timer_ = nullptr;
  std::unique_ptr<SyntheticModel> model_;
  const std::vector<float> weights_ = std::vector<float>(kParameters);
  std::vector<float> gradient_ = std::vector<float>(kParameters);
  Follower follower_;
  Score score_;
};

TEST_F(SyntheticModelTest, AStepTakesItsTimeAThirdOfItForward) {
  Make();
  const double start = timer_->Now();
  std::vector<double> before, after, expected_before, expected_after;
  follower_.before = [&](Range) { before.push_back(timer_->Now() - start); };
  follower_.after = [&](Range) { after.push_back(timer_->Now() - start); };
  EXPECT_NEAR(Train(), kStep, 1e-9);
  for (int i = 0; i < kLayers; ++i) {
    expected_before.push_back(kStep / 3 * i / kLayers);
    expected_after.push_back(kStep / 3 + kStep * 2 / 3 * (i + 1) / kLayers);
  }
  EXPECT_THAT(before, Pointwise(DoubleNear(1e-9), expected_before));
  EXPECT_THAT(after, Pointwise(DoubleNear(1e-9), expected_after));
}

TEST_F(SyntheticModelTest, WeightsAreAskedForFromTheFirstLayerOnAndTheGradientIsFinalFromTheLastOneOn) {
  Make();
  int64_t forward = 0, backward = kParameters;
  follower_.before = [&](Range range) {
    EXPECT_EQ(range.begin, forward);
    forward = range.end;
    EXPECT_EQ(backward, kParameters) << "backward began before the end of forward";
  };
  std::fill(gradient_.begin(), gradient_.end(), std::numeric_limits<float>::quiet_NaN());
  follower_.after = [&](Range range) {
    EXPECT_EQ(range.end, backward);
    backward = range.begin;
    EXPECT_TRUE(std::all_of(gradient_.begin() + range.begin, gradient_.end(),
                            [](float g) { return std::isfinite(g); }));
    EXPECT_TRUE(range.begin == 0 || std::isnan(gradient_[range.begin - 1]));
  };
  Train();
  EXPECT_EQ(forward, kParameters);
  EXPECT_EQ(backward, 0);
}

TEST_F(SyntheticModelTest, LateAwakeningsDoNotAddUp) {
  constexpr double kLate = 0.001;
  Make(/*spread=*/0, /*seed=*/1, /*oversleep=*/kLate);
  EXPECT_NEAR(Train(), kStep + kLate, 1e-9);
}

TEST_F(SyntheticModelTest, WhatTheObserverTakesComesOnTop) {
  Make();
  follower_.before = [&](Range range) {
    if (range.begin == 0) timer_->Pass(0.05);
  };
  follower_.after = [&](Range range) {
    if (range.begin == 0) timer_->Pass(0.02);
  };
  EXPECT_NEAR(Train(), kStep + 0.07, 1e-9);
}

TEST_F(SyntheticModelTest, SpreadLeavesTheMeanAsItIs) {
  constexpr int kSteps = 20000;
  constexpr double kSigma = 0.5;
  Make(kSigma);
  double sum = 0, sum_of_logs = 0, sum_of_squares = 0;
  for (int i = 0; i < kSteps; ++i) {
    const double seconds = Train(Derive(3, i));
    sum += seconds;
    sum_of_logs += std::log(seconds);
    sum_of_squares += std::log(seconds) * std::log(seconds);
  }
  EXPECT_NEAR(sum / kSteps, kStep, 0.01 * kStep);
  const double mean_log = sum_of_logs / kSteps;
  EXPECT_NEAR(std::sqrt(sum_of_squares / kSteps - mean_log * mean_log), kSigma, 0.01);
}

TEST_F(SyntheticModelTest, AStepsTimeFollowsFromSeedAndSamples) {
  Make(0.5, /*seed=*/1);
  const double first = Train(1);
  EXPECT_NE(Train(2), first);
  EXPECT_NEAR(Train(1), first, 1e-9);
  Make(0.5, /*seed=*/2);
  EXPECT_GT(std::abs(Train(1) - first), 1e-9);
}

TEST_F(SyntheticModelTest, TheGradientIsSmallNowhereZeroAndAlwaysTheSame) {
  Make();
  Train();
  const std::vector<float> first = gradient_;
  for (const float g : first) {
    ASSERT_NE(g, 0.0f);
    ASSERT_LE(std::abs(g), 0.001f);
  }
  EXPECT_GT(*std::max_element(first.begin(), first.end()), 0.0009f);
  EXPECT_LT(*std::min_element(first.begin(), first.end()), -0.0009f);
  Train();
  EXPECT_EQ(gradient_, first);
  for (float& g : gradient_) g *= 2;
  Train();
  EXPECT_EQ(gradient_, first);
  gradient_.assign(kParameters, 0.0f);
  Train();
  EXPECT_EQ(gradient_, first);
}

TEST_F(SyntheticModelTest, ABufferThatHoldsTheGradientIsNotWritten) {
  Make();
  Train();
  // Within a layer: no caller changes a part of one, and the ends tell of all.
  gradient_[10] = 5;
  Train();
  EXPECT_EQ(gradient_[10], 5);
}

TEST_F(SyntheticModelTest, NothingIsLearned) {
  Make();
  Train();
  EXPECT_EQ(score_.samples, 7);
  EXPECT_EQ(score_.loss_sum, 0);
  EXPECT_EQ(score_.correct, 0);
  const double now = timer_->Now();
  EXPECT_EQ(model_->Evaluate(weights_, {nullptr, nullptr, nullptr, 7}).samples, 0);
  EXPECT_EQ(timer_->Now(), now);
}

TEST_F(SyntheticModelTest, SaysWhatItIs) {
  Make();
  EXPECT_EQ(model_->device(), "synthetic: 100 ms a step");
  ASSERT_EQ(model_->tensors().size(), static_cast<size_t>(kLayers));
  EXPECT_EQ(model_->tensors()[7].name, "layer8.weight");
}

}  // namespace
}  // namespace catchment
