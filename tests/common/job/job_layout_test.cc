#include "common/job/job_layout.h"

#include "gtest/gtest.h"

namespace catchment {
namespace {

const std::vector<TensorSpec> kTensors = {
    {"dense1.weight", {10, 1000}}, {"dense1.bias", {10}}, {"tail", {300}}};

v1::Job Job(v1::Optimizer::Kind kind) {
  v1::Job job;
  job.mutable_optimizer()->set_kind(kind);
  job.set_block_kib(1);
  return job;
}

TEST(LayoutOf, IsCutAnywhereForElementwiseOptimizers) {
  for (int kind = v1::Optimizer::SGD; kind < v1::Optimizer::LARS; ++kind) {
    const auto layout = LayoutOf(Job(static_cast<v1::Optimizer::Kind>(kind)), kTensors, 2);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->cuts(), Cuts::kAnywhere) << kind;
    EXPECT_EQ(layout->shard(0), (Range{0, 5152}));
    EXPECT_EQ(layout->block(0, 1), (Range{256, 512}));
  }
}

TEST(LayoutOf, IsOfWholeTensorsForLarsAndLamb) {
  for (const v1::Optimizer::Kind kind : {v1::Optimizer::LARS, v1::Optimizer::LARC, v1::Optimizer::LAMB}) {
    const auto layout = LayoutOf(Job(kind), kTensors, 2);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->cuts(), Cuts::kBetweenTensors);
    EXPECT_EQ(layout->shard(0), (Range{0, 10000}));
    EXPECT_EQ(layout->block_size(), 256);
    EXPECT_EQ(layout->num_blocks(0), 1);
    EXPECT_EQ(layout->block(1, 1), (Range{10010, 10310}));
  }
}

TEST(LayoutOf, NamesTheFieldThatAsksForWholeTensors) {
  EXPECT_EQ(LayoutOf(Job(v1::Optimizer::LAMB), kTensors, 4).status().message(),
            "optimizer.kind: is LAMB, which takes norms over whole tensors: cannot split 3 tensors, which "
            "stay whole, between 4 servers; use 1 to 3, or another optimizer");
  EXPECT_EQ(LayoutOf(Job(v1::Optimizer::SGD), kTensors, 1000).status().message(),
            "cannot split 10310 parameters between 1000 servers; use 1 to 645");
}

}  // namespace
}  // namespace catchment
