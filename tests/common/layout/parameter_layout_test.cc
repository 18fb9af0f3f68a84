#include "common/parameter_layout.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "common/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::HasSubstr;

// 1000 + 24 + 3 parameters.
std::vector<TensorSpec> Tensors() {
  return {{"a.weight", {10, 100}}, {"a.bias", {2, 3, 4}}, {"b.bias", {3}}};
}

ParameterLayout Make(int num_shards, int64_t block_size = 64) {
  const auto layout = ParameterLayout::Create(Tensors(), num_shards, block_size);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

std::string Error(std::vector<TensorSpec> tensors, int num_shards, int64_t block_size) {
  const auto layout = ParameterLayout::Create(std::move(tensors), num_shards, block_size);
  EXPECT_EQ(layout.status().code(), absl::StatusCode::kInvalidArgument);
  return std::string(layout.status().message());
}

TEST(ParameterLayout, TensorsLieOneAfterAnother) {
  const ParameterLayout layout = Make(1);
  EXPECT_EQ(layout.size(), 1027);
  EXPECT_EQ(layout.tensor(0), (Range{0, 1000}));
  EXPECT_EQ(layout.tensor(1), (Range{1000, 1024}));
  EXPECT_EQ(layout.tensor(2), (Range{1024, 1027}));
}

TEST(ParameterLayout, ShardsCoverAllAreEvenAndBeginAtWholeCacheLines) {
  for (int num_shards = 1; num_shards <= 65; ++num_shards) {
    const ParameterLayout layout = Make(num_shards);
    int64_t end = 0, smallest = layout.size(), largest = 0;
    for (int shard = 0; shard < num_shards; ++shard) {
      const Range range = layout.shard(shard);
      EXPECT_EQ(range.begin, end);
      EXPECT_EQ(range.begin % 16, 0);
      EXPECT_GT(range.size(), 0);
      smallest = std::min(smallest, range.size());
      largest = std::max(largest, range.size());
      end = range.end;
    }
    EXPECT_EQ(end, 1027) << num_shards;
    EXPECT_LE(largest - smallest, 16) << num_shards;
  }
}

// From about 1,600 parameters a server on; below, a server has at most 16 more or fewer.
TEST(ParameterLayout, BytesPerServerAreWithinOnePercentOfEven) {
  Random random(1);
  for (int trial = 0; trial < 500; ++trial) {
    std::vector<TensorSpec> tensors;
    for (uint64_t t = random.Below(12) + 1; t > 0; --t) {
      const int64_t size = 1 + static_cast<int64_t>(random.Next() % (uint64_t{1} << random.Below(22)));
      tensors.push_back({"t" + std::to_string(t), {size, 1 + static_cast<int64_t>(random.Below(3))}});
    }
    const int num_shards = 1 + static_cast<int>(random.Below(100));
    const auto layout = ParameterLayout::Create(tensors, num_shards, 1 + random.Below(100000));
    if (!layout.ok()) continue;  // smaller than 16 parameters a server
    const double even = static_cast<double>(layout->size()) / num_shards;
    for (int shard = 0; shard < num_shards; ++shard) {
      const double off = std::abs(layout->shard(shard).size() - even);
      ASSERT_LT(off, 17) << layout->size() << " parameters, " << num_shards << " servers";
      ASSERT_TRUE(even < 1700 || off / even <= 0.01) << layout->size() << ", " << num_shards;
    }
  }
}

TEST(ParameterLayout, BlocksCoverTheirShardAndOnlyTheLastIsShort) {
  for (int64_t block_size : {1, 64, 100, 5000}) {
    const ParameterLayout layout = Make(3, block_size);
    for (int shard = 0; shard < 3; ++shard) {
      int64_t end = layout.shard(shard).begin;
      for (int block = 0; block < layout.num_blocks(shard); ++block) {
        const Range range = layout.block(shard, block);
        EXPECT_EQ(range.begin, end);
        EXPECT_GT(range.size(), 0);
        if (block + 1 < layout.num_blocks(shard)) {
          EXPECT_EQ(range.size(), block_size);
        }
        end = range.end;
      }
      EXPECT_EQ(end, layout.shard(shard).end);
    }
  }
}

TEST(ParameterLayout, FingerprintIsOfNamesAndShapesAlone) {
  const uint64_t fingerprint = Make(1).fingerprint();
  EXPECT_EQ(Make(7, 3).fingerprint(), fingerprint);
  const std::vector<std::vector<TensorSpec>> others = {
      {{"a.weight", {100, 10}}, {"a.bias", {2, 3, 4}}, {"b.bias", {3}}},
      {{"a.weight", {10, 100}}, {"a.bias", {6, 4}}, {"b.bias", {3}}},
      {{"a.weight", {10, 100}}, {"a.bias", {2, 3, 4}}, {"c.bias", {3}}},
      {{"a.bias", {2, 3, 4}}, {"a.weight", {10, 100}}, {"b.bias", {3}}},
      {{"a.weight", {10, 100}}, {"a.bias", {2, 3, 4}}}};
  std::set<uint64_t> seen = {fingerprint};
  for (const auto& tensors : others) {
    EXPECT_TRUE(seen.insert(ParameterLayout::Create(tensors, 1, 64)->fingerprint()).second);
  }
}

TEST(ParameterLayout, RefusesWhatCannotBe) {
  EXPECT_THAT(Error({}, 1, 64), HasSubstr("no parameters"));
  EXPECT_THAT(Error(Tensors(), 1, 0), HasSubstr("a block holds no values"));
  EXPECT_THAT(Error({{"a", {1}}, {"a", {2}}}, 1, 64), HasSubstr("two tensors are called a"));
  EXPECT_THAT(Error({{"a", {3, 0}}}, 1, 64), HasSubstr("a 3x0 has a dimension below 1"));
  EXPECT_THAT(Error(Tensors(), 0, 64), HasSubstr("use 1 to 65"));
  EXPECT_THAT(Error(Tensors(), 66, 64),
              HasSubstr("cannot split 1027 parameters between 66 servers; use 1 to 65"));
}

TEST(DescribeDifference, NamesTheFirst) {
  EXPECT_EQ(DescribeDifference(Tensors(), Tensors()), "");
  EXPECT_EQ(DescribeDifference({{"a", {2, 3}}}, {{"a", {3, 2}}}), "tensor 0: expected a 2x3, got a 3x2");
  EXPECT_EQ(DescribeDifference({{"a", {2}}, {"b", {3}}}, {{"a", {2}}}),
            "tensor 1: expected b 3, got no more");
  EXPECT_EQ(DescribeDifference({{"a", {2}}}, {{"a", {2}}, {"b", {3}}}),
            "tensor 1: expected no more, got b 3");
}

}  // namespace
}  // namespace catchment
