#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/codec/formats.h"
#include "tests/common/codec/payloads.h"

namespace catchment {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

float FromBits(uint32_t bits) { return std::bit_cast<float>(bits); }

std::vector<uint16_t> Encode(const std::vector<float>& values) {
  std::string bytes(2 * values.size(), '\0');
  EncodeBfloat16(values, bytes.data());
  return ValuesOf<uint16_t>(bytes);
}

// By looking for it: the neighbour that is closer, of two that are equally close the even one.
uint16_t NearestBySearch(float value) {
  const uint16_t down = std::bit_cast<uint32_t>(value) >> 16;  // toward zero
  const auto widen = [](uint32_t upper) -> double {
    // The neighbour above the largest number is 2^128 for the purpose of rounding.
    return (upper & 0x7fff) == 0x7f80 ? std::copysign(0x1p128, FromBits(upper << 16)) : FromBits(upper << 16);
  };
  const double below = std::abs(value - widen(down)), above = std::abs(widen(down + 1u) - value);
  if (below != above) return below < above ? down : down + 1;
  return down % 2 == 0 ? down : down + 1;
}

bool IsNan(uint16_t pattern) { return (pattern & 0x7fff) > 0x7f80; }

TEST(Bfloat16, EveryPatternIsTheUpperHalfOfAFloat) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = i;
  std::vector<float> values(patterns.size());
  EXPECT_FALSE(DecodeBfloat16(CutPayload(BytesOf(patterns)).view(), values.data()));
  for (uint32_t i = 0; i < patterns.size(); ++i) {
    ASSERT_EQ(std::bit_cast<uint32_t>(values[i]), i << 16);
    float alone;
    ASSERT_EQ(DecodeBfloat16(CutPayload(BytesOf<uint16_t>({patterns[i]})).view(), &alone),
              std::abs(values[i]) < 0x1p63f)
        << std::hex << i;
  }
  const std::vector<uint16_t> again = Encode(values);
  for (uint32_t i = 0; i < patterns.size(); ++i) {
    ASSERT_EQ(again[i], IsNan(i) ? (i | 0x40) : i) << std::hex << i;
  }
}

// Between every two neighbours: the middle, and the floats on both sides of it.
TEST(Bfloat16, RoundsToTheNearestAndTiesToEven) {
  std::vector<float> values;
  for (uint32_t upper = 0; upper < 65536; ++upper) {
    if ((upper & 0x7fff) >= 0x7f80) continue;
    for (const uint32_t lower : {0x0001u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      values.push_back(FromBits(upper << 16 | lower));
    }
  }
  const std::vector<uint16_t> got = Encode(values);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], NearestBySearch(values[i])) << std::hexfloat << values[i];
  }
}

TEST(Bfloat16, RandomFloatsRoundToTheNearest) {
  Random random(1);
  std::vector<float> values;
  while (values.size() < 1000000) {
    const float value = FromBits(static_cast<uint32_t>(random.Next()));
    if (std::isfinite(value)) values.push_back(value);
  }
  const std::vector<uint16_t> got = Encode(values);
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_EQ(got[i], NearestBySearch(values[i])) << std::hexfloat << values[i];
  }
}

TEST(Bfloat16, EveryKindOfNanStaysOne) {
  for (const uint32_t bits : {0x7f800001u, 0xff800001u, 0x7f80ffffu, 0x7fc00000u, 0x7fffffffu, 0xffffffffu}) {
    EXPECT_TRUE(IsNan(Encode({FromBits(bits)})[0])) << std::hex << bits;
  }
  EXPECT_EQ(Encode({kInfinity, -kInfinity}), (std::vector<uint16_t>{0x7f80, 0xff80}));
}

TEST(Bfloat16, RelativeErrorIsAtMostTwoToTheMinusEight) {
  Random random(2);
  std::vector<float> values(100000);
  for (float& value : values) value = static_cast<float>(random.Normal() * std::exp(8 * random.Normal()));
  std::vector<float> back(values.size());
  EXPECT_TRUE(DecodeBfloat16(CutPayload(BytesOf(Encode(values))).view(), back.data()));
  for (size_t i = 0; i < values.size(); ++i) {
    ASSERT_LE(std::abs(back[i] - values[i]), std::abs(values[i]) * 0x1p-8);
  }
}

// Lengths around the vectors' widths: nothing before or after is touched.
TEST(Bfloat16, EveryLength) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 20;
    std::string bytes(2 * n + 1, 'x');
    EncodeBfloat16(values, bytes.data());
    EXPECT_EQ(bytes.back(), 'x');
    bytes.pop_back();
    std::vector<float> back(n + 1, 7);
    EXPECT_TRUE(DecodeBfloat16(CutPayload(bytes).view(), back.data()));
    EXPECT_EQ(back.back(), 7);
    back.pop_back();
    EXPECT_EQ(back, values);
  }
}

}  // namespace
}  // namespace catchment
