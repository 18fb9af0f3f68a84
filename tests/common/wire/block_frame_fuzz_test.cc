// DecodeFrame beside protobuf's generated parser on messages that are damaged on purpose: the two accept and
// refuse the same ones, and read the same from what they accept. All damage follows from fixed seeds.
//
// They differ on purpose in two things, both of which no protobuf library writes for a Block:
//   - groups (wire types 3 and 4), which proto3 does not have: protobuf skips unknown ones, we refuse them;
//   - a tag of more than 32 bits: protobuf drops the upper bits, we refuse it.
#include <google/protobuf/unknown_field_set.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "common/base/random.h"
#include "common/wire/block_frame.h"
#include "tests/common/wire/damage.h"

namespace catchment {
namespace {

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes.push_back(static_cast<char>(value | 0x80));
  bytes.push_back(static_cast<char>(value));
  return bytes;
}

std::string Tag(uint64_t field, int wire_type) { return Varint(field << 3 | wire_type); }

// ------------------------------------------------------------------------------------------------ messages

uint64_t AnyNumber(Random* random) {
  const uint64_t edges[] = {0, 1, 127, 128, 1ull << 31, 1ull << 32, (1ull << 32) - 1, 1ull << 63, ~0ull};
  return random->Below(3) == 0 ? edges[random->Below(9)] : random->Next() >> random->Below(64);
}

// A field with any number, of a Block or of none, and any type, its own or another.
std::string AnyField(Random* random) {
  const uint64_t field = random->Below(4) == 0 ? 1 + random->Below((1 << 29) - 1) : 1 + random->Below(16);
  switch (random->Below(4)) {
    case 0:
      return Tag(field, 0) + Varint(AnyNumber(random));
    case 1:
      return Tag(field, 1) + std::string(8, static_cast<char>(random->Next()));
    case 2:
      return Tag(field, 5) + std::string(4, static_cast<char>(random->Next()));
  }
  const std::string payload = AnyBytes(random, 40);
  return Tag(field, 2) + Varint(payload.size()) + payload;
}

// Fields in any order, many of them more than once.
std::string AnyMessage(Random* random) {
  std::string bytes;
  for (uint64_t fields = random->Below(12); fields > 0; --fields) bytes += AnyField(random);
  return bytes;
}

// ---------------------------------------------------------------------------------------------- comparison

bool HasGroup(const v1::Block& block) {
  const google::protobuf::UnknownFieldSet& unknown = block.GetReflection()->GetUnknownFields(block);
  for (int i = 0; i < unknown.field_count(); ++i) {
    if (unknown.field(i).type() == google::protobuf::UnknownField::TYPE_GROUP) return true;
  }
  return false;
}

// Somewhere, perhaps as a tag: five bytes of a varint that are more than 32 bits.
bool HasLongVarint(const std::string& bytes) {
  for (size_t i = 0; i + 4 < bytes.size(); ++i) {
    int more = 0;
    while (more < 4 && (bytes[i + more] & 0x80) != 0) ++more;
    if (more == 4 && static_cast<uint8_t>(bytes[i + 4]) > 0x0f && (bytes[i + 4] & 0x80) == 0) return true;
  }
  return false;
}

BlockHeader HeaderOf(const v1::Block& block) {
  return {
      block.operation(), block.sequence(),     block.version(),       block.block(),
      block.samples(),   block.staleness(),    block.fate(),          block.scale() == 0 ? 1 : block.scale(),
      block.steps(),     block.shared_bytes(), block.shared_offset(), block.shared_generation()};
}

std::string Copy(const PayloadView& payload) {
  std::string bytes(payload.size(), '\0');
  payload.CopyTo(bytes.data());
  return bytes;
}

// Expects that both decoders agree. Returns true if both accept the bytes.
bool ExpectAgreement(const std::string& bytes, const Pieces& pieces) {
  const std::string shown = absl::BytesToHexString(bytes);
  BlockHeader header;
  PayloadView payload;
  const absl::Status status = DecodeFrame(pieces, &header, &payload);
  v1::Block block;
  if (!block.ParseFromString(bytes)) {
    EXPECT_FALSE(status.ok()) << "protobuf refuses " << shown;
    return false;
  }
  if (absl::StrContains(status.message(), "unknown wire type")) {
    EXPECT_TRUE(HasGroup(block)) << shown;
    return false;
  }
  if (absl::StrContains(status.message(), "impossible field number")) {
    EXPECT_TRUE(HasLongVarint(bytes)) << shown;
    return false;
  }
  EXPECT_TRUE(status.ok()) << "protobuf accepts " << shown << ": " << status;
  if (!status.ok()) return false;
  const BlockHeader expected = HeaderOf(block);
  // NaN is not equal to itself.
  EXPECT_TRUE(header == expected || (header.scale != header.scale && block.scale() != block.scale()))
      << shown;
  EXPECT_EQ(Copy(payload), block.payload()) << shown;
  return true;
}

bool ExpectAgreement(const std::string& bytes) { return ExpectAgreement(bytes, Pieces{bytes}); }

struct Outcome {
  int accepted = 0, refused = 0;
};

Outcome Fuzz(uint64_t seed, int cases, const std::function<std::string(Random*)>& make) {
  Random random(seed);
  Outcome outcome;
  for (int i = 0; i < cases && !testing::Test::HasFailure(); ++i) {
    const std::string bytes = make(&random);
    ++(ExpectAgreement(bytes, CutAtRandom(bytes, &random)) ? outcome.accepted : outcome.refused);
  }
  return outcome;
}

// --------------------------------------------------------------------------------------------------- tests

TEST(BlockFrameFuzz, ValidMessagesWithFieldsInAnyOrderAndRepeated) {
  const Outcome outcome = Fuzz(1, 30000, AnyMessage);
  EXPECT_EQ(outcome.refused, 0);
}

TEST(BlockFrameFuzz, DamagedMessages) {
  const Outcome outcome = Fuzz(2, 200000, [](Random* random) {
    std::string bytes = AnyMessage(random);
    for (uint64_t times = 1 + random->Below(3); times > 0; --times) Damage(&bytes, random);
    return bytes;
  });
  EXPECT_GT(outcome.accepted, 20000);
  EXPECT_GT(outcome.refused, 20000);
}

TEST(BlockFrameFuzz, RandomBytes) {
  const Outcome outcome = Fuzz(3, 200000, [](Random* random) { return AnyBytes(random, 12); });
  EXPECT_GT(outcome.accepted, 1000);
  EXPECT_GT(outcome.refused, 20000);
}

// Every prefix of a message in which each number takes its most bytes.
TEST(BlockFrameFuzz, TruncatedAtEveryLength) {
  std::string bytes;
  for (int field : {1, 2, 3, 4, 5, 6, 7, 100, (1 << 29) - 1}) bytes += Tag(field, 0) + Varint(~0ull);
  bytes += Tag(8, 5) + "abcd" + Tag(200, 1) + "abcdefgh" + Tag(15, 2) + Varint(300) + std::string(300, 'x');
  Random random(4);
  for (size_t size = 0; size <= bytes.size(); ++size) {
    const std::string cut = bytes.substr(0, size);
    for (int i = 0; i < 10; ++i) ExpectAgreement(cut, CutAtRandom(cut, &random));
  }
}

// Varints of 1 to 11 bytes, all the same otherwise; after the tenth byte protobuf gives up.
TEST(BlockFrameFuzz, NumbersOfEveryLength) {
  for (int field : {1, 2, 4, 15, 99}) {
    for (int size = 1; size <= 11; ++size) {
      for (uint8_t last : {0x00, 0x01, 0x02, 0x7f}) {
        const std::string number = std::string(size - 1, '\xff') + static_cast<char>(last);
        EXPECT_EQ(ExpectAgreement(Tag(field, 0) + number), size <= 10) << field << " " << size;
        for (int cut = 1; cut < size; ++cut) ExpectAgreement(Tag(field, 0) + number.substr(0, cut));
      }
    }
  }
}

// Tags and lengths may take five bytes, also where one would do.
TEST(BlockFrameFuzz, TagsAndLengthsThatAreLongerThanTheyNeedBe) {
  for (int size = 1; size <= 11; ++size) {
    const auto padded = [&](uint8_t value) {
      if (size == 1) return std::string(1, static_cast<char>(value));
      return static_cast<char>(value | 0x80) + std::string(size - 2, '\x80') + std::string(1, '\0');
    };
    EXPECT_EQ(ExpectAgreement(padded(2 << 3) + "\x07"), size <= 5) << "tag, " << size;
    EXPECT_EQ(ExpectAgreement(Tag(15, 2) + padded(3) + "abc"), size <= 5) << "length, " << size;
    EXPECT_EQ(ExpectAgreement(Tag(99, 2) + padded(3) + "abc"), size <= 5) << "length of an unknown, " << size;
  }
}

TEST(BlockFrameFuzz, LengthsThatLie) {
  for (int field : {15, 16}) {
    for (uint64_t length : {4ull, 127ull, 128ull, 0x7fffffefull, 0x7fffffffull, 0x80000000ull, 0xffffffffull,
                            0x100000003ull, 0x8000000000000000ull, ~0ull}) {
      EXPECT_FALSE(ExpectAgreement(Tag(field, 2) + Varint(length) + "abc")) << length;
    }
    EXPECT_TRUE(ExpectAgreement(Tag(field, 2) + Varint(3) + "abc"));
    EXPECT_TRUE(ExpectAgreement(Tag(field, 2) + Varint(0)));
  }
}

TEST(BlockFrameFuzz, FieldNumbersThatCannotBe) {
  for (int wire_type = 0; wire_type < 8; ++wire_type) {
    EXPECT_FALSE(ExpectAgreement(Tag(0, wire_type) + std::string(8, '\1'))) << wire_type;
  }
  for (int wire_type : {6, 7}) {
    EXPECT_FALSE(ExpectAgreement(Tag(15, wire_type) + std::string(8, '\1'))) << wire_type;
  }
  EXPECT_TRUE(ExpectAgreement(Tag((1 << 29) - 1, 0) + "\1"));
}

absl::Status Decode(const std::string& bytes) {
  BlockHeader header;
  PayloadView payload;
  return DecodeFrame(Pieces{bytes}, &header, &payload);
}

TEST(BlockFrameFuzz, GroupsAreRefusedThoughProtobufSkipsThem) {
  v1::Block block;
  for (int field : {1, 8, 15, 16}) {
    const std::string group = Tag(field, 3) + Tag(2, 0) + "\7" + Tag(field, 4);
    ASSERT_TRUE(block.ParseFromString(group));
    EXPECT_EQ(Decode(group).message(), "malformed Block message: unknown wire type");
    EXPECT_FALSE(ExpectAgreement(Tag(field, 4))) << "the end of what has not begun";
    EXPECT_FALSE(ExpectAgreement(Tag(field, 3) + Tag(field + 1, 4))) << "the end of another";
    EXPECT_FALSE(ExpectAgreement(Tag(field, 3))) << "no end";
  }
}

TEST(BlockFrameFuzz, TagOfMoreThan32BitsIsRefusedThoughProtobufDropsTheUpperOnes) {
  const std::string bytes = Varint(uint64_t{1} << 32 | 2 << 3) + "\7";
  v1::Block block;
  ASSERT_TRUE(block.ParseFromString(bytes));
  EXPECT_EQ(block.sequence(), 7u);
  EXPECT_EQ(Decode(bytes).message(), "malformed Block message: impossible field number");
}

// Whatever the cut, a float is put together again: one cut at every place, then all bytes apart.
TEST(BlockFrameFuzz, FloatAcrossSlices) {
  const float values[] = {1.5f, -2.25f, 3e38f};
  v1::Block block;
  block.set_scale(0.375f);
  block.set_payload(std::string(reinterpret_cast<const char*>(values), sizeof(values)));
  const std::string bytes = block.SerializeAsString();
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    EXPECT_TRUE(ExpectAgreement(
        bytes, {absl::string_view(bytes).substr(0, cut), absl::string_view(bytes).substr(cut)}));
  }
  Pieces apart;
  for (const char& c : bytes) apart.insert(apart.end(), {absl::string_view(&c, 1), absl::string_view()});
  EXPECT_TRUE(ExpectAgreement(bytes, apart));
  float copied[3];
  BlockHeader header;
  PayloadView payload;
  ASSERT_TRUE(DecodeFrame(apart, &header, &payload).ok());
  ASSERT_EQ(payload.size(), sizeof(copied));
  payload.CopyTo(copied);
  EXPECT_TRUE(std::equal(values, values + 3, copied));
}

}  // namespace
}  // namespace catchment
