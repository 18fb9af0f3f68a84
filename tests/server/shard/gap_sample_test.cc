#include "server/shard/gap_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

namespace catchment {
namespace {

TEST(GapSampleTest, SmallShardIsReadWhole) {
  const GapSample sample(1000);
  EXPECT_EQ(sample.SizeIn({0, 1000}), 1000);
  std::vector<float> sent(1000), now(1000, 0.0f), taken(300);
  double expected = 0;
  for (int i = 0; i < 1000; ++i) sent[i] = 0.25f * static_cast<float>(i % 7);
  for (int i = 200; i < 500; ++i) expected += sent[i] * sent[i];
  sample.Copy({200, 500}, sent.data(), taken.data());
  EXPECT_DOUBLE_EQ(sample.SquaredGap({200, 500}, now.data(), taken.data()), expected);
}

// A matrix, of which the first quarter of the columns moves: values at a fixed spacing might all lie in it,
// or none.
TEST(GapSampleTest, LargeShardsSampleIsSmallAndSeesAllColumnsAlike) {
  constexpr int64_t kRows = 512;
  for (const int64_t columns : {4095, 4096, 4100}) {
    const int64_t size = kRows * columns;
    const GapSample sample(size);
    ASSERT_EQ(sample.SizeIn({0, size}), 1024);
    std::vector<float> sent(size, 0.0f), now(size, 0.0f), taken(1024);
    sample.Copy({0, size}, sent.data(), taken.data());
    for (int64_t i = 0; i < size; ++i) now[i] = i % columns < columns / 4 ? 2 : 0;
    const double gap = std::sqrt(sample.SquaredGap({0, size}, now.data(), taken.data()) / 1024);
    EXPECT_NEAR(gap, 1, 0.1) << "sqrt(4 / 4), in rows of " << columns;
  }
}

// Whatever the blocks, the same values are read.
TEST(GapSampleTest, BlocksTogetherHaveTheShardsSample) {
  constexpr int64_t kSize = 10'000;
  const GapSample sample(kSize);
  std::vector<float> now(kSize), none(kSize, 0.0f);
  for (int64_t i = 0; i < kSize; ++i) now[i] = static_cast<float>(i);
  const double whole = sample.SquaredGap({0, kSize}, now.data(), none.data());
  for (int64_t block : {3, 11, 999, 4096}) {
    int64_t values = 0;
    double sum = 0;
    for (int64_t begin = 0; begin < kSize; begin += block) {
      const Range range = {begin, std::min(kSize, begin + block)};
      values += sample.SizeIn(range);
      sum += sample.SquaredGap(range, now.data(), none.data());
    }
    EXPECT_EQ(values, sample.SizeIn({0, kSize})) << block;
    EXPECT_DOUBLE_EQ(sum, whole) << block;
  }
}

}  // namespace
}  // namespace catchment
