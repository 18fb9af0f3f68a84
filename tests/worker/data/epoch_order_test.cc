#include "worker/data/epoch_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace catchment {
namespace {

TEST(EpochOrderTest, IsAPermutation) {
  for (int64_t n : {1, 2, 3, 1000}) {
    EpochOrder order(7, n);
    std::vector<uint32_t> sorted = order.order(3);
    std::sort(sorted.begin(), sorted.end());
    std::vector<uint32_t> expected(n);
    std::iota(expected.begin(), expected.end(), 0);
    EXPECT_EQ(sorted, expected) << n << " samples";
  }
}

TEST(EpochOrderTest, IsTheSameOnEveryMachine) {
  EXPECT_THAT(EpochOrder(1, 8).order(0), testing::ElementsAre(1, 0, 3, 4, 6, 5, 2, 7));
  EXPECT_THAT(EpochOrder(1, 8).order(1), testing::ElementsAre(5, 1, 0, 7, 2, 4, 3, 6));
}

TEST(EpochOrderTest, DependsOnSeedAndEpochAndNotOnWhatWasAskedBefore) {
  EpochOrder forward(5, 100), backward(5, 100);
  std::vector<std::vector<uint32_t>> orders;
  for (int epoch = 0; epoch < 6; ++epoch) orders.push_back(forward.order(epoch));
  for (int epoch = 5; epoch >= 0; --epoch) EXPECT_EQ(backward.order(epoch), orders[epoch]) << epoch;
  EXPECT_NE(orders[0], orders[1]);
  EXPECT_NE(EpochOrder(6, 100).order(0), orders[0]);
}

TEST(EpochOrderTest, KeepsTheLastTwoEpochs) {
  EpochOrder order(5, 100);
  const std::vector<uint32_t>& zero = order.order(0);
  const std::vector<uint32_t> zero_before = zero;
  const uint32_t* zero_memory = zero.data();
  const uint32_t* one_memory = order.order(1).data();
  EXPECT_NE(zero_memory, one_memory);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(order.order(0).data(), zero_memory);
    EXPECT_EQ(order.order(1).data(), one_memory);
  }
  EXPECT_EQ(order.order(0), zero_before);
  // The one that was asked for longest ago makes room.
  EXPECT_EQ(order.order(2).data(), one_memory);
  EXPECT_EQ(order.order(0).data(), zero_memory);
}

TEST(EpochOrderTest, EverySampleIsAtEveryPositionEquallyOften) {
  constexpr int kSamples = 5, kEpochs = 10000;
  EpochOrder order(11, kSamples);
  int counts[kSamples][kSamples] = {};
  for (int epoch = 0; epoch < kEpochs; ++epoch) {
    for (int position = 0; position < kSamples; ++position) ++counts[position][order.order(epoch)[position]];
  }
  // Binomial: mean 2000, standard deviation 40; five of them.
  for (const auto& row : counts) {
    EXPECT_THAT(row, testing::Each(testing::AllOf(testing::Gt(1800), testing::Lt(2200))));
  }
}

TEST(EpochOrderDeathTest, RefusesNoSamples) { EXPECT_DEATH(EpochOrder(1, 0), "num_samples"); }

}  // namespace
}  // namespace catchment
