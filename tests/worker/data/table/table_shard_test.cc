#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <cmath>

#include "tests/worker/data/idx_files.h"
#include "worker/data/table/formats.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

template <typename T>
std::string Bytes(std::vector<T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

uint32_t Crc(const std::string& bytes) {
  return static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), bytes.size()));
}

// A shard by the layout in formats.h.
std::string ShardBytes(uint32_t value_kind, uint32_t label_kind, uint32_t label_size,
                       const std::vector<uint32_t>& shape, uint64_t rows, std::string values,
                       const std::string& labels, uint32_t version = 1) {
  std::vector<uint32_t> three = shape;
  three.resize(3, 1);
  std::string header =
      "CMTSHARD" +
      Bytes<uint32_t>({version, value_kind, label_kind, label_size, static_cast<uint32_t>(shape.size())}) +
      Bytes(three) + Bytes<uint64_t>({rows}) + Bytes<uint32_t>({Crc(labels)});
  header += Bytes<uint32_t>({Crc(header)}) + std::string(8, '\0');
  while (values.size() % 64 != 0) values += '\0';
  return header + values + labels;
}

// Two rows of two bytes.
const std::string kShard =
    ShardBytes(0, 0, 3, {2}, 2, std::string("\x01\x02\x03\xff", 4), Bytes<int32_t>({2, 0}));
const TableSpec kSpec = {.shape = SampleShape::Vector(2), .target = 3};

absl::StatusOr<TableRows> Read(const std::string& bytes, const TableSpec& spec = kSpec) {
  return ReadShard(WriteFile(TestDirectory(), "x.shard", bytes), spec);
}

std::string Error(const absl::StatusOr<TableRows>& rows) {
  EXPECT_FALSE(rows.ok());
  return std::string(rows.status().message());
}

TEST(ShardTest, ReadsBytes) {
  const auto rows = Read(kShard);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->size, 2);
  EXPECT_EQ(rows->bytes.get()[3], 255);
  EXPECT_EQ(rows->floats, nullptr);
  EXPECT_THAT(rows->labels, ElementsAre(2, 0));
}

TEST(ShardTest, ReadsFloatsAndTargets) {
  const TableSpec spec = {.shape = SampleShape::Sequence(1, 2), .target = TargetShape::Real(2)};
  const auto rows = Read(ShardBytes(1, 1, 2, {1, 2}, 1, Bytes<float>({0.5, -3}), Bytes<float>({7, 8})), spec);
  ASSERT_TRUE(rows.ok()) << rows.status();
  EXPECT_EQ(rows->floats.get()[1], -3);
  EXPECT_THAT(rows->targets, ElementsAre(7, 8));
}

TEST(ShardTest, WritesWhatItReads) {
  const Dataset data(SampleShape::Vector(2), 3,
                     std::make_unique<FloatSamples>(std::vector<float>{1, 2, 3, 4, 5, 6}, 2), {0, 2, 1});
  const std::string path = TestDirectory() + "/y.shard";
  ASSERT_TRUE(WriteShard(path, data, 1, 3).ok());
  EXPECT_EQ(ReadUnpacked(path),
            ShardBytes(1, 0, 3, {2}, 2, Bytes<float>({3, 4, 5, 6}), Bytes<int32_t>({2, 1})));
  const Dataset bad(SampleShape::Vector(2), 3,
                    std::make_unique<FloatSamples>(std::vector<float>{1, 2, 3, NAN}, 2), {0, 2});
  EXPECT_THAT(std::string(WriteShard(path, bad, 0, 2).message()), HasSubstr("y.shard: value 2 of 2 is nan"));
}

TEST(ShardTest, KeepsBytesOfImages) {
  const Dataset data({1, 1, 2}, 3, {0.5f, 0.25f}, {1, 2, 3, 4}, {0, 2});
  const std::string path = TestDirectory() + "/y.shard";
  ASSERT_TRUE(WriteShard(path, data, 0, 2).ok());
  EXPECT_EQ(ReadUnpacked(path),
            ShardBytes(0, 0, 3, {1, 1, 2}, 2, "\x01\x02\x03\x04", Bytes<int32_t>({0, 2})));
}

TEST(ShardTest, MapsTheFile) {
  const std::string path = WriteFile(TestDirectory(), "x.shard", kShard);
  const auto rows = ReadShard(path, kSpec);
  ASSERT_TRUE(rows.ok());
  // Written in place, the file shows through the mapping.
  FILE* const file = fopen(path.c_str(), "r+b");
  fseek(file, 64, SEEK_SET);
  fputc(9, file);
  fclose(file);
  EXPECT_EQ(rows->bytes.get()[0], 9);
}

TEST(ShardTest, TellsAFileThatIsCutOrDamaged) {
  EXPECT_THAT(Error(Read(kShard.substr(0, kShard.size() - 1))),
              HasSubstr("x.shard: is cut short: its 2 rows take 136 bytes, and it has 135. Pack it again"));
  EXPECT_THAT(Error(Read(kShard.substr(0, 20))), HasSubstr("is cut short in its header"));
  EXPECT_THAT(Error(Read(kShard + "x")), HasSubstr("is too long"));
  for (size_t at = 12; at < 56; ++at) {
    std::string damaged = kShard;
    damaged[at] ^= 4;
    EXPECT_THAT(Error(Read(damaged)), HasSubstr("x.shard: its header is damaged. Pack it again")) << at;
  }
  std::string damaged = kShard;
  damaged.back() ^= 1;
  EXPECT_THAT(Error(Read(damaged)), HasSubstr("its labels are damaged"));
}

TEST(ShardTest, RefusesForeignFiles) {
  EXPECT_THAT(Error(Read("1,2,3\n")),
              HasSubstr("is not a packed shard: it does not begin with CMTSHARD. Pack it again"));
  EXPECT_THAT(Error(Read("")), HasSubstr("is not a packed shard"));
  EXPECT_THAT(Error(Read(ShardBytes(0, 0, 3, {2}, 1, "ab", Bytes<int32_t>({0}), 2))),
              HasSubstr("is of version 2, and this program reads 1"));
  // Sizes that no file has do not get as far as arithmetic with them.
  for (const uint64_t rows : {uint64_t{0}, uint64_t{1} << 62, ~uint64_t{0}}) {
    EXPECT_THAT(Error(Read(ShardBytes(0, 0, 3, {1u << 31, 1u << 31, 1u << 31}, rows, "", ""))),
                HasSubstr("its header is damaged"));
  }
}

TEST(ShardTest, MustBeWhatTheJobSays) {
  TableSpec spec = kSpec;
  spec.shape = SampleShape::Sequence(1, 2);
  EXPECT_THAT(Error(Read(kShard, spec)), HasSubstr("its samples are 2, and data.table.shape is 1x2"));
  spec.shape = SampleShape::Sequence(2, 1);
  EXPECT_THAT(Error(Read(kShard, spec)), HasSubstr("its samples are 2, and data.table.shape is 2x1"));
  spec = kSpec;
  spec.target = 4;
  EXPECT_THAT(Error(Read(kShard, spec)), HasSubstr("has 3 classes, and data.table 4 classes"));
  spec.target = TargetShape::Real(3);
  EXPECT_THAT(Error(Read(kShard, spec)), HasSubstr("has 3 classes, and data.table 3 real targets"));
  EXPECT_THAT(Error(Read(ShardBytes(0, 0, 3, {2}, 1, "ab", Bytes<int32_t>({3})))),
              HasSubstr("x.shard has label 3; data.table.classes is 3"));
}

}  // namespace
}  // namespace catchment
