#include "common/job/parameter_layout.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <numeric>
#include <set>

#include "common/base/random.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace catchment {
namespace {

using ::testing::ElementsAre;
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

// This holds for about 1,600 or more parameters per server; with fewer, a server has at most 16 more or fewer
// than even.
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

// Tensors t0, t1, ... of these sizes.
std::vector<TensorSpec> Sized(const std::vector<int64_t>& sizes) {
  std::vector<TensorSpec> tensors;
  for (int64_t size : sizes) tensors.push_back({"t" + std::to_string(tensors.size()), {size}});
  return tensors;
}

ParameterLayout MakeWhole(const std::vector<int64_t>& sizes, int num_shards, int64_t block_size) {
  const auto layout = ParameterLayout::Create(Sized(sizes), num_shards, block_size, Cuts::kBetweenTensors);
  EXPECT_TRUE(layout.ok()) << layout.status();
  return *layout;
}

std::vector<int64_t> ShardSizes(const ParameterLayout& layout) {
  std::vector<int64_t> sizes;
  for (int s = 0; s < layout.num_shards(); ++s) sizes.push_back(layout.shard(s).size());
  return sizes;
}

// The largest part, then the sum of squares; the smallest pair is the best split.
using Unevenness = std::pair<int64_t, double>;
Unevenness UnevennessOf(const std::vector<int64_t>& parts) {
  double squares = 0;
  for (int64_t part : parts) squares += static_cast<double>(part) * part;
  return {*std::max_element(parts.begin(), parts.end()), squares};
}

// Returns the best of all splits into `parts` parts, by trying all of them.
Unevenness BestSplit(const std::vector<int64_t>& sizes, size_t first, int parts) {
  std::vector<int64_t> chosen;
  Unevenness best = {std::numeric_limits<int64_t>::max(), 0};
  const std::function<void(size_t, int)> split = [&](size_t from, int left) {
    if (left == 1) {
      chosen.push_back(std::accumulate(sizes.begin() + from, sizes.end(), int64_t{0}));
      best = std::min(best, UnevennessOf(chosen));
      chosen.pop_back();
      return;
    }
    for (size_t to = from + 1; to + left - 1 <= sizes.size(); ++to) {
      chosen.push_back(std::accumulate(sizes.begin() + from, sizes.begin() + to, int64_t{0}));
      split(to, left - 1);
      chosen.pop_back();
    }
  };
  split(first, parts);
  return best;
}

TEST(WholeTensors, ShardsAreAsEvenAsWholeTensorsAllow) {
  EXPECT_THAT(ShardSizes(MakeWhole({5, 5, 5, 5, 5, 5}, 3, 64)), ElementsAre(10, 10, 10));
  EXPECT_THAT(ShardSizes(MakeWhole({1, 1, 1, 1, 10}, 3, 64)), ElementsAre(2, 2, 10));
  EXPECT_THAT(ShardSizes(MakeWhole({100, 1, 1}, 3, 64)), ElementsAre(100, 1, 1));
  EXPECT_THAT(ShardSizes(MakeWhole({7, 3}, 1, 64)), ElementsAre(10));
  Random random(3);
  for (int trial = 0; trial < 300; ++trial) {
    std::vector<int64_t> sizes(1 + random.Below(9));
    for (int64_t& size : sizes)
      size = 1 + static_cast<int64_t>(random.Below(uint64_t{1} << random.Below(12)));
    const int num_shards = 1 + static_cast<int>(random.Below(sizes.size()));
    const std::vector<int64_t> shards = ShardSizes(MakeWhole(sizes, num_shards, 64));
    EXPECT_EQ(UnevennessOf(shards), BestSplit(sizes, 0, num_shards)) << ::testing::PrintToString(sizes);
  }
}

TEST(WholeTensors, BlocksAreConsecutiveTensorsUpToTheBlockSizeOrALargerOneAlone) {
  const ParameterLayout layout = MakeWhole({30, 30, 4, 1, 64, 65, 10, 200, 1, 63, 1}, 1, 64);
  std::vector<int64_t> ends;
  for (int b = 0; b < layout.num_blocks(0); ++b) {
    EXPECT_EQ(layout.block(0, b).begin, b == 0 ? 0 : ends.back());
    ends.push_back(layout.block(0, b).end);
  }
  EXPECT_THAT(ends, ElementsAre(64, 65, 129, 194, 204, 404, 468, 469));
  EXPECT_THAT(layout.TensorEnds(0, 0), ElementsAre(30, 60, 64));
  EXPECT_THAT(layout.TensorEnds(0, 3), ElementsAre(65));
  EXPECT_EQ(layout.most_in_block(), 200);
  EXPECT_EQ(MakeWhole({3, 4}, 1, 64).most_in_block(), 64);
  EXPECT_EQ(Make(1).most_in_block(), 64);
}

TEST(WholeTensors, EveryTensorLiesInOneBlockOfOneShard) {
  Random random(4);
  for (int trial = 0; trial < 100; ++trial) {
    std::vector<int64_t> sizes(1 + random.Below(40));
    for (int64_t& size : sizes)
      size = 1 + static_cast<int64_t>(random.Below(uint64_t{1} << random.Below(12)));
    const int64_t block_size = 1 + static_cast<int64_t>(random.Below(3000));
    const ParameterLayout layout =
        MakeWhole(sizes, 1 + static_cast<int>(random.Below(sizes.size())), block_size);
    size_t tensor = 0;
    int64_t begin = 0;
    for (int s = 0; s < layout.num_shards(); ++s) {
      EXPECT_EQ(layout.shard(s).begin, begin);
      for (int b = 0; b < layout.num_blocks(s); ++b) {
        const Range block = layout.block(s, b);
        EXPECT_EQ(block.begin, begin);
        const std::vector<int64_t> ends = layout.TensorEnds(s, b);
        EXPECT_TRUE(block.size() <= block_size || ends.size() == 1);
        EXPECT_LE(block.size(), layout.most_in_block());
        for (int64_t end : ends) EXPECT_EQ(block.begin + end, layout.tensor(static_cast<int>(tensor++)).end);
        EXPECT_EQ(ends.back(), block.size());
        begin = block.end;
      }
      EXPECT_EQ(layout.shard(s).end, begin);
    }
    EXPECT_EQ(tensor, sizes.size());
  }
}

TEST(WholeTensors, RefusesWhatCannotBe) {
  const auto error = [](const std::vector<int64_t>& sizes, int num_shards) {
    return std::string(
        ParameterLayout::Create(Sized(sizes), num_shards, 64, Cuts::kBetweenTensors).status().message());
  };
  EXPECT_EQ(error({5, 6}, 3), "cannot split 2 tensors, which stay whole, between 3 servers; use 1 to 2");
  EXPECT_EQ(error({5, 6}, 0), "cannot split 2 tensors, which stay whole, between 0 servers; use 1 to 2");
  EXPECT_EQ(error({5, 535822337}, 1),
            "tensor t1 535822337 has 535822337 values, and one that stays whole has at most 535822336; use "
            "smaller tensors");
  EXPECT_EQ(error({5, 535822336}, 1), "");
}

TEST(ParameterLayout, CountsInSixtyFourBits) {
  constexpr int64_t kBlock = 65536;
  const auto create = [](const std::vector<int64_t>& sizes, int num_shards, int64_t block,
                         int fragments = 1) {
    return ParameterLayout::Create(Sized(sizes), num_shards, block, Cuts::kAnywhere, fragments);
  };
  for (const int fragments : {1, 4}) {
    const auto layout = create({kMaxParameters / 16, kMaxParameters / 16 + 17}, 3, kBlock, fragments);
    ASSERT_TRUE(layout.ok()) << layout.status();
    EXPECT_EQ(layout->size(), kMaxParameters / 8 + 17);
    int64_t end = 0;
    for (int s = 0; s < 3; ++s) {
      const int last = layout->num_blocks(s) - 1;
      EXPECT_EQ(layout->block(s, 0).begin, end);
      end = layout->shard(s).end;
      EXPECT_EQ(layout->block(s, last).end, end);
      EXPECT_EQ(layout->BlocksOf(s, {end - 1, end}), (Range{last, last + 1}));
    }
    EXPECT_EQ(end, layout->size());
  }
  EXPECT_EQ(create({kMaxParameters, 1}, 9999, kBlock).status().message(),
            "the model has more than 1099511627776 parameters (2^40), which is the most");
  EXPECT_EQ(TensorSpec({"a", {int64_t{1} << 62, 8}}).size(), kMaxParameters + 1);
  EXPECT_EQ(
      create({kMaxParameters}, 4, kBlock).status().message(),
      "cannot cut the 274877906944 parameters of a server into blocks of 65536: that is more than 2097152 "
      "blocks; use a block_kib of at least 512, or more servers");
  EXPECT_TRUE(create({kMaxParameters}, 8, kBlock).ok());
}

TEST(ParameterLayout, FindsTheBlocksOfValues) {
  for (const ParameterLayout& layout :
       {Make(2, 64), Make(3, 7), MakeWhole({30, 30, 4, 1, 64, 65, 10, 200, 1}, 3, 64)}) {
    for (int64_t begin = 0; begin < layout.size(); begin += 13) {
      for (int64_t end : {begin, begin + 1, begin + 40, layout.size()}) {
        for (int s = 0; s < layout.num_shards(); ++s) {
          std::vector<int64_t> expected, found;
          for (int b = 0; b < layout.num_blocks(s); ++b) {
            const Range block = layout.block(s, b);
            if (std::max(block.begin, begin) < std::min(block.end, end)) expected.push_back(b);
          }
          const Range blocks = layout.BlocksOf(s, {begin, end});
          for (int64_t b = blocks.begin; b < blocks.end; ++b) found.push_back(b);
          EXPECT_EQ(found, expected) << begin << " .. " << end << " of shard " << s;
        }
      }
    }
  }
}

TEST(ParameterLayout, FingerprintIsOfNamesAndShapesAlone) {
  const uint64_t fingerprint = Make(1).fingerprint();
  EXPECT_EQ(Make(7, 3).fingerprint(), fingerprint);
  EXPECT_EQ(ParameterLayout::Create(Tensors(), 2, 64, Cuts::kBetweenTensors)->fingerprint(), fingerprint);
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

// Each value of the flat vector by its fragment.
std::vector<int> FragmentsOf(const ParameterLayout& layout) {
  std::vector<int> fragments(layout.size(), -1);
  for (int f = 0; f < layout.num_fragments(); ++f) {
    int64_t end = -1;
    for (const Range& range : layout.fragment(f)) {
      EXPECT_GE(range.begin, end) << "fragment " << f;
      EXPECT_GT(range.size(), 0);
      for (int64_t i = range.begin; i < range.end; ++i) {
        EXPECT_EQ(fragments[i], -1) << "value " << i;
        fragments[i] = f;
      }
      end = range.end;
    }
  }
  return fragments;
}

TEST(ParameterLayout, FragmentsAreEvenAndIndependentOfShardsAndBlocks) {
  for (const Cuts cuts : {Cuts::kAnywhere, Cuts::kBetweenTensors}) {
    std::vector<TensorSpec> tensors;
    for (int64_t t = 0; t < 40; ++t) tensors.push_back({"t" + std::to_string(t), {100 + 37 * t % 150}});
    for (const int fragments : {1, 2, 3, 7, 24}) {
      const auto one = ParameterLayout::Create(tensors, 1, 1 << 20, cuts, fragments);
      ASSERT_TRUE(one.ok()) << one.status();
      const std::vector<int> expected = FragmentsOf(*one);
      EXPECT_EQ(std::count(expected.begin(), expected.end(), -1), 0);
      std::vector<int64_t> sizes(fragments);
      for (const int f : expected) ++sizes[f];
      const auto [least, most] = std::minmax_element(sizes.begin(), sizes.end());
      const int64_t one_part = cuts == Cuts::kAnywhere ? one->size() / (4 * fragments) + 16 : 250;
      EXPECT_LE(*most - *least, one_part) << fragments << " fragments: one chunk, or one tensor";
      for (const int shards : {1, 2, 5}) {
        for (const int64_t block_size : {17, 64, 1000}) {
          const auto layout = ParameterLayout::Create(tensors, shards, block_size, cuts, fragments);
          ASSERT_TRUE(layout.ok()) << layout.status();
          EXPECT_EQ(FragmentsOf(*layout), expected);
          EXPECT_EQ(layout->has_equal_blocks(), cuts == Cuts::kAnywhere && fragments == 1);
          for (int s = 0; s < shards; ++s) {
            ASSERT_EQ(layout->FragmentsOfBlocks(s).size(), static_cast<size_t>(layout->num_blocks(s)));
            int64_t end = layout->shard(s).begin;
            for (int b = 0; b < layout->num_blocks(s); ++b) {
              const Range block = layout->block(s, b);
              EXPECT_EQ(block.begin, end);
              EXPECT_EQ(layout->BlocksOf(s, block), (Range{b, b + 1}));
              if (cuts == Cuts::kAnywhere) {
                EXPECT_LE(block.size(), block_size);
              }
              for (int64_t i = block.begin; i < block.end; ++i)
                ASSERT_EQ(expected[i], static_cast<int>(layout->FragmentsOfBlocks(s)[b])) << "value " << i;
              end = block.end;
            }
            EXPECT_EQ(end, layout->shard(s).end);
          }
        }
      }
    }
  }
}

TEST(ParameterLayout, FragmentsOfWholeTensorsReceiveTheLargestFirst) {
  const auto layout =
      ParameterLayout::Create({{"a", {10}}, {"b", {20}}, {"c", {10}}}, 1, 64, Cuts::kBetweenTensors, 2);
  ASSERT_TRUE(layout.ok()) << layout.status();
  EXPECT_THAT(layout->FragmentsOfBlocks(0), ElementsAre(1, 0, 1));
}

TEST(ParameterLayout, EachFragmentOfALargeVectorLiesOnAllShards) {
  const auto layout = ParameterLayout::Create({{"w", {1000000}}}, 3, 1 << 16, Cuts::kAnywhere, 5);
  ASSERT_TRUE(layout.ok());
  for (int s = 0; s < 3; ++s) {
    const std::vector<uint32_t>& fragments = layout->FragmentsOfBlocks(s);
    EXPECT_EQ(std::set<uint32_t>(fragments.begin(), fragments.end()), (std::set<uint32_t>{0, 1, 2, 3, 4}));
  }
}

TEST(ParameterLayout, RefusesWhatCannotBe) {
  EXPECT_EQ(ParameterLayout::Create(Tensors(), 1, 64, Cuts::kAnywhere, 65).status().message(),
            "cannot divide 1027 parameters into 65 fragments; use 1 to 64");
  EXPECT_EQ(ParameterLayout::Create(Tensors(), 1, 64, Cuts::kBetweenTensors, 4).status().message(),
            "cannot divide 3 tensors, which stay whole, into 4 fragments; use 1 to 3");
  EXPECT_THAT(Error({}, 1, 64), HasSubstr("no parameters"));
  EXPECT_THAT(Error(Tensors(), 1, 0), HasSubstr("the block size must be at least 1"));
  EXPECT_THAT(Error({{"a", {1}}, {"a", {2}}}, 1, 64), HasSubstr("two tensors have the name a"));
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
