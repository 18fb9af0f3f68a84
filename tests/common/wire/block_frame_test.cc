#include "common/wire/block_frame.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/random.h"
#include "common/net/grpc_frame.h"

namespace catchment {
namespace {

using Pieces = std::vector<absl::string_view>;

v1::Block RandomBlock(Random* random) {
  const auto number = [&] { return random->Below(3) == 0 ? 0 : random->Next() >> random->Below(64); };
  v1::Block block;
  block.set_operation(static_cast<v1::Block::Operation>(random->Below(5)));
  block.set_sequence(number());
  block.set_version(number());
  block.set_block(number());
  block.set_samples(number());
  block.set_staleness(number());
  block.set_fate(static_cast<v1::Block::Fate>(random->Below(5)));
  block.set_scale(std::vector<float>{0, 0x1p-126f, 0x1p-5f, 3, -1.5f, 0x1p113f}[random->Below(6)]);
  block.set_steps(number());
  block.set_shared_bytes(number());
  block.set_shared_offset(number());
  block.set_shared_generation(number());
  block.mutable_payload()->resize(random->Below(4) == 0 ? 0 : random->Below(300));
  for (char& c : *block.mutable_payload()) c = static_cast<char>(random->Next());
  return block;
}

BlockHeader HeaderOf(const v1::Block& block) {
  return {
      block.operation(), block.sequence(),     block.version(),       block.block(),
      block.samples(),   block.staleness(),    block.fate(),          block.scale() == 0 ? 1 : block.scale(),
      block.steps(),     block.shared_bytes(), block.shared_offset(), block.shared_generation()};
}

Pieces CutAtRandom(const std::string& bytes, Random* random) {
  Pieces pieces;
  for (size_t at = 0; at < bytes.size();) {
    const size_t size = std::min<size_t>(bytes.size() - at, random->Below(5) == 0 ? 0 : random->Below(40));
    pieces.emplace_back(bytes.data() + at, size);
    at += size;
  }
  return pieces;
}

std::string Copy(const PayloadView& payload) {
  std::string bytes(payload.size(), '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

TEST(BlockFrame, WritesWhatProtobufWrites) {
  Random random(1);
  for (int i = 0; i < 2000; ++i) {
    const v1::Block block = RandomBlock(&random);
    char header[kMaxBlockHeaderBytes];
    const size_t size = EncodeHeader(HeaderOf(block), block.payload().size(), header);
    ASSERT_LE(size, kMaxBlockHeaderBytes);
    ASSERT_EQ(std::string(header, size) + block.payload(), block.SerializeAsString()) << block.DebugString();
  }
}

TEST(BlockFrame, ReadsWhatProtobufWritesHoweverItIsCut) {
  Random random(2);
  for (int i = 0; i < 2000; ++i) {
    const v1::Block block = RandomBlock(&random);
    const std::string bytes = block.SerializeAsString();
    const Pieces pieces = CutAtRandom(bytes, &random);
    BlockHeader header;
    PayloadView payload;
    ASSERT_TRUE(DecodeFrame(pieces, &header, &payload).ok());
    EXPECT_EQ(header, HeaderOf(block)) << block.DebugString();
    EXPECT_EQ(Copy(payload), block.payload());
  }
}

TEST(BlockFrame, SkipsUnknownFieldsAndTakesTheLastOfARepeatedOne) {
  v1::Block first, second;
  first.set_version(1);
  first.set_payload("old");
  second.set_version(2);
  second.set_payload("new");
  const std::string unknown(
      "\x82\x01\x03xyz\x8d\x01"
      "abcd\x91\x01"
      "abcdefgh\x98\x01\x96\x01",
      26);
  const std::string bytes = first.SerializeAsString() + unknown + second.SerializeAsString();
  v1::Block parsed;
  ASSERT_TRUE(parsed.ParseFromString(bytes));
  BlockHeader header;
  PayloadView payload;
  const Pieces pieces{bytes};
  ASSERT_TRUE(DecodeFrame(pieces, &header, &payload).ok());
  EXPECT_EQ(header.version, 2u);
  EXPECT_EQ(Copy(payload), "new");
}

TEST(BlockFrame, TheLargestHeaderHasRoom) {
  const uint64_t most = ~uint64_t{0};
  const BlockHeader header{static_cast<v1::Block::Operation>(-1), most, most, ~0u, ~0u, most,
                           static_cast<v1::Block::Fate>(-1),      1e30f};
  char bytes[2 * kMaxBlockHeaderBytes];
  EXPECT_LE(EncodeHeader(header, most, bytes), kMaxBlockHeaderBytes);
}

BlockHeader HeaderIn(const std::string& bytes) {
  BlockHeader header;
  PayloadView payload;
  EXPECT_TRUE(DecodeFrame(Pieces{bytes}, &header, &payload).ok());
  return header;
}

TEST(BlockFrame, AnAbsentScaleIsOne) {
  EXPECT_EQ(HeaderIn("").scale, 1);
  EXPECT_EQ(HeaderIn(std::string("\x45\0\0\0\0", 5)).scale, 1) << "zero is absence";
  EXPECT_EQ(HeaderIn(std::string("\x45\0\0\0\x40", 5)).scale, 2);
  EXPECT_EQ(HeaderIn("\x40\x07").scale, 1) << "a number where a float belongs is an unknown field";
  v1::Block block;
  block.set_block(1);
  char header[kMaxBlockHeaderBytes];
  EXPECT_EQ(std::string(header, EncodeHeader(HeaderOf(block), 0, header)), block.SerializeAsString());
}

TEST(PayloadView, IsTakenInPartsHoweverItIsCut) {
  Random random(4);
  for (int i = 0; i < 2000; ++i) {
    std::string bytes(1 + random.Below(100), '\0');
    for (char& c : bytes) c = static_cast<char>(random.Next());
    const Pieces pieces = CutAtRandom(bytes, &random);
    const size_t begin = random.Below(pieces.front().size() + 1);
    PayloadView rest(pieces, begin, random.Below(bytes.size() - begin + 1));
    std::string expected = bytes.substr(begin, rest.size());
    while (rest.size() > 0) {
      ASSERT_EQ(Copy(rest), expected);
      ASSERT_FALSE(rest.front().empty());
      ASSERT_EQ(rest.front(), expected.substr(0, rest.front().size()));
      const size_t count = random.Below(rest.size() + 1);
      std::string taken(count, '\0');
      if (random.Below(2) == 0) {
        rest.Skip(count);
      } else {
        rest.Take(count, taken.data());
        ASSERT_EQ(taken, expected.substr(0, count));
      }
      expected.erase(0, count);
    }
    EXPECT_TRUE(expected.empty());
    EXPECT_TRUE(rest.front().empty());
  }
}

TEST(BlockFrame, RefusesEveryTruncation) {
  v1::Block block;
  block.set_operation(v1::Block::PUSH);
  block.set_version(300);
  block.set_scale(4);
  block.set_payload("12345678");
  const std::string bytes = block.SerializeAsString();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    v1::Block parsed;
    BlockHeader header;
    PayloadView payload;
    EXPECT_EQ(DecodeFrame(Pieces{cut}, &header, &payload).ok(), parsed.ParseFromString(cut)) << size;
  }
}

// Damaged at random, a message is either refused, or its payload lies inside the message.
TEST(BlockFrame, SurvivesGarbage) {
  Random random(3);
  int refused = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string bytes = RandomBlock(&random).SerializeAsString();
    for (int flips = 0; flips < 3 && !bytes.empty(); ++flips) {
      bytes[random.Below(std::min<size_t>(bytes.size(), 30))] = static_cast<char>(random.Next());
    }
    const Pieces pieces = CutAtRandom(bytes, &random);
    BlockHeader header;
    PayloadView payload;
    if (!DecodeFrame(pieces, &header, &payload).ok()) {
      ++refused;
      continue;
    }
    ASSERT_LE(payload.size(), bytes.size());
    Copy(payload);
  }
  EXPECT_GT(refused, 1000);
}

TEST(BlockFrame, NamesALengthThatLies) {
  const std::string bytes(
      "\x7a\xff\x0f"
      "abc");
  BlockHeader header;
  PayloadView payload;
  const absl::Status status = DecodeFrame(Pieces{bytes}, &header, &payload);
  EXPECT_EQ(status.message(), "malformed Block message: a field is longer than the message");
}

TEST(GrpcFrame, RoundTripsWithoutCopyingThePayload) {
  const std::string weights(1 << 20, 'w');
  const BlockHeader header{v1::Block::PUSH, 7, 8, 9, 64, 0, v1::Block::FATE_UNSET};
  const grpc::ByteBuffer buffer =
      Frame(header, grpc::Slice(weights.data(), weights.size(), grpc::Slice::STATIC_SLICE));
  ReceivedFrame frame;
  ASSERT_TRUE(frame.Decode(buffer).ok());
  EXPECT_EQ(frame.header(), header);
  EXPECT_EQ(Copy(frame.payload()), weights);
  std::vector<grpc::Slice> slices;
  ASSERT_TRUE(buffer.Dump(&slices).ok());
  EXPECT_EQ(slices.back().begin(), reinterpret_cast<const uint8_t*>(weights.data()));
}

}  // namespace
}  // namespace catchment
