// The noise of gradients that a shard reports, against a direct computation over its whole vector.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <vector>

#include "common/base/random.h"
#include "server/shard/shard.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

// Two blocks with several of the pieces in which the rules work, and one with less.
constexpr int64_t kValues = 5001, kBlock = 2048;
constexpr int kEvery = NoiseAverage::kEvery;

using Gradients = std::vector<std::vector<float>>;

Gradients Draw(int workers, Random* random) {
  Gradients gradients(workers, std::vector<float>(kValues));
  for (int64_t i = 0; i < kValues; ++i) {
    const double mean = random->Normal();
    for (auto& gradient : gradients) gradient[i] = static_cast<float>(mean + 3 * random->Normal());
  }
  return gradients;
}

struct Estimate {
  double trace = 0;
  double squared_gradient = 0;
};

// The paper's formulas, for contributions of b samples each: those of one have the squared norm `small`,
// their average `large`.
Estimate OfEqualBatches(const Gradients& gradients, double b) {
  const auto k = static_cast<double>(gradients.size());
  double small = 0, large = 0;
  for (int64_t i = 0; i < kValues; ++i) {
    double sum = 0;
    for (const auto& gradient : gradients) {
      small += double{gradient[i]} * gradient[i] / k;
      sum += gradient[i];
    }
    large += sum / k * sum / k;
  }
  return {(small - large) / (1 / b - 1 / (k * b)), (k * b * large - b * small) / (k * b - b)};
}

class NoiseTest : public testing::Test {
 protected:
  void Make(const v1::Job& job, int workers) {
    std::vector<uint32_t> members;
    for (int w = 0; w < workers; ++w) members.push_back(w);
    shard_.emplace(job, kValues, kBlock, members);
    update_ = 0;
  }

  // Makes an update of all blocks; worker w has samples[w].
  void Update(const Gradients& gradients, const std::vector<uint32_t>& samples) {
    for (uint32_t block = 0; block < 3; ++block) {
      const Range range = shard_->shard().block_range(static_cast<int>(block));
      for (uint32_t w = 0; w < gradients.size(); ++w) {
        const std::vector<float> values(gradients[w].begin() + range.begin, gradients[w].begin() + range.end);
        const absl::Status status = shard_->HandleValues(
            {.worker = w, .sequence = update_ + 1, .version = update_, .block = block, .samples = samples[w]},
            values);
        ASSERT_TRUE(status.ok()) << status;
      }
    }
    shard_->Take();
    ++update_;
  }
  v1::ShardReport Report() { return shard_->shard().Report(); }

  Random random_{1};
  std::optional<ShardHarness> shard_;
  uint64_t update_ = 0;
};

TEST_F(NoiseTest, IsTheMeanOfThePapersEstimatesOverAllBlocks) {
  Make(GradientJob(true), 4);
  EXPECT_FALSE(Report().has_noise());
  Estimate sum;
  int measured = 0;
  for (int update = 0; update < 3 * kEvery; ++update) {
    const Gradients gradients = Draw(4, &random_);
    Update(gradients, {8, 8, 8, 8});
    if (update % kEvery != 0) continue;
    const Estimate estimate = OfEqualBatches(gradients, 8);
    sum.trace += estimate.trace;
    sum.squared_gradient += estimate.squared_gradient;
    ++measured;
    const v1::GradientNoise noise = Report().noise();
    EXPECT_EQ(noise.updates(), static_cast<uint64_t>(measured));
    EXPECT_NEAR(noise.trace(), sum.trace / measured, 1e-5 * noise.trace());
    EXPECT_NEAR(noise.squared_gradient(), sum.squared_gradient / measured, 1e-4 * noise.squared_gradient());
  }
  // S has 9 * 8 on its diagonal, and each component of the gradient the variance 1.
  EXPECT_NEAR(Report().noise().trace(), 72 * kValues, 0.1 * 72 * kValues);
  EXPECT_NEAR(Report().noise().squared_gradient(), kValues, 0.2 * kValues);
}

// With batches b_i the gradients' noise is drawn with the variance 72 / b_i.
TEST_F(NoiseTest, TakesBatchesOfUnequalSizes) {
  Make(GradientJob(true), 3);
  const std::vector<uint32_t> samples = {1, 4, 16};
  for (int update = 0; update < 10 * kEvery; ++update) {
    Gradients gradients(3, std::vector<float>(kValues));
    for (size_t w = 0; w < 3; ++w) {
      for (float& value : gradients[w]) {
        value = static_cast<float>(1 + std::sqrt(72.0 / samples[w]) * random_.Normal());
      }
    }
    Update(gradients, samples);
  }
  const v1::GradientNoise noise = Report().noise();
  EXPECT_EQ(noise.updates(), 10u);
  EXPECT_NEAR(noise.trace(), 72 * kValues, 0.02 * 72 * kValues);
  EXPECT_NEAR(noise.squared_gradient(), kValues, 0.15 * kValues);
}

TEST_F(NoiseTest, IsNotMeasuredFromContributionsThatAreNotGradientsOrAreAlone) {
  v1::Job clipped = GradientJob(true), sparse = GradientJob(true), rounded = GradientJob(true),
          sum = GradientJob(true), corrected = GradientJob(true);
  clipped.mutable_optimizer()->set_clip_norm(1);
  sparse.mutable_compression()->set_push(v1::Compression::TOP_K);
  rounded.mutable_compression()->set_push(v1::Compression::INT8);
  sum.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_push_period(2);
  corrected.mutable_algorithm()->mutable_compensation()->mutable_delay_compensated()->set_lambda(0.1f);
  for (const v1::Job& job :
       {clipped, sparse, rounded, sum, corrected, ElasticJob(true, 0.1f), GradientJob(false)}) {
    EXPECT_FALSE(HasGradientNoise(job)) << job.DebugString();
  }
  v1::Job mean = sum;
  mean.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_fetch_period(2);
  mean.mutable_algorithm()->mutable_contribution()->mutable_gradient()->set_mean(true);
  EXPECT_TRUE(HasGradientNoise(mean));

  Make(GradientJob(true), 1);
  Update(Draw(1, &random_), {8});
  EXPECT_FALSE(Report().has_noise()) << "one worker has nothing to be compared with";
  Make(GradientJob(true), 3);
  Update(Draw(3, &random_), {8, 0, 0});
  EXPECT_FALSE(Report().has_noise()) << "the others had no samples";
  Make(GradientJob(false), 2);
  Update(Draw(2, &random_), {8, 8});
  EXPECT_FALSE(Report().has_noise());
}

// Group 1, worker 1 alone, has made updates in the meantime. Worker 2 may have joined after them.
TEST(NoiseOfGroupsTest, IsMeasuredOnlyBetweenGradientsOfTheSameVersion) {
  for (const uint64_t version_of_2 : {0, 7}) {
    ShardHarness shard(GradientJobWith("consistency { grouped { groups: 2 } }"), 16, 16, {0, 1, 2});
    for (uint64_t i = 0; i < NoiseAverage::kEvery; ++i) {
      ASSERT_TRUE(shard.Handle({.worker = 1, .sequence = i + 1, .version = i, .value = 1}).ok());
    }
    ASSERT_TRUE(shard.Handle({.worker = 0, .version = 0, .value = 1}).ok());
    ASSERT_TRUE(shard.Handle({.worker = 2, .version = version_of_2, .value = 2}).ok());
    ASSERT_EQ(shard.shard().version(), NoiseAverage::kEvery + 1);
    EXPECT_EQ(shard.shard().Report().noise().updates(), version_of_2 == 0 ? 1u : 0u);
    EXPECT_EQ(shard.shard().Report().noise().trace(), version_of_2 == 0 ? 8 : 0)
        << "16 values, 0.5 from their mean";
  }
}

}  // namespace
}  // namespace catchment
