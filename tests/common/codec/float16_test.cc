#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "common/codec/formats.h"
#include "tests/common/codec/payloads.h"

namespace catchment {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kLargest = std::numeric_limits<float>::max();
constexpr float kSmallest = std::numeric_limits<float>::denorm_min();
const float kNan = std::nanf("");

// IEEE 754 binary16, read off the standard.
double Number(uint16_t pattern) {
  const int exponent = pattern >> 10 & 31, fraction = pattern & 1023;
  const double sign = pattern >> 15 ? -1 : 1;
  if (exponent == 31) return fraction == 0 ? sign * kInfinity : kNan;
  if (exponent == 0) return sign * std::ldexp(fraction, -24);
  return sign * std::ldexp(1024 + fraction, exponent - 25);
}

std::vector<uint16_t> Encode(const std::vector<float>& values, float scale) {
  std::string bytes(2 * values.size(), '\0');
  EncodeFloat16(values, scale, bytes.data());
  return ValuesOf<uint16_t>(bytes);
}

struct Decoded {
  std::vector<float> values;
  bool finite;
};

Decoded Decode(const std::vector<uint16_t>& patterns, float scale) {
  Decoded decoded{std::vector<float>(patterns.size())};
  decoded.finite = DecodeFloat16(CutPayload(BytesOf(patterns)).view(), scale, decoded.values.data());
  return decoded;
}

// As a worker and a server do it.
Decoded RoundTrip(const std::vector<float>& values) {
  const float scale = ScaleForFloat16(values);
  return Decode(Encode(values, scale), scale);
}

TEST(Float16, EveryPatternIsItsNumberTimesTheScale) {
  std::vector<uint16_t> patterns(65536);
  for (size_t i = 0; i < patterns.size(); ++i) patterns[i] = i;
  for (const float scale : {1.0f, 0x1p-126f, 0x1p-30f, 0x1p100f}) {
    const Decoded decoded = Decode(patterns, scale);
    EXPECT_FALSE(decoded.finite);
    const std::vector<uint16_t> again = Encode(decoded.values, scale);
    for (uint32_t i = 0; i < patterns.size(); ++i) {
      const double expected = Number(i) * scale;
      ASSERT_EQ(Decode({patterns[i]}, scale).finite, std::abs(expected) < 0x1p63) << std::hex << i;
      if (std::isnan(expected)) {
        ASSERT_TRUE(std::isnan(decoded.values[i])) << std::hex << i;
        ASSERT_TRUE(std::isnan(Number(again[i]))) << std::hex << i;
        continue;
      }
      // With scale 2^-126 the last bits of subnormal numbers are below the range of float32.
      const float exact = static_cast<float>(expected);
      ASSERT_EQ(std::bit_cast<uint32_t>(decoded.values[i]), std::bit_cast<uint32_t>(exact)) << std::hex << i;
      if (exact == expected) {
        ASSERT_EQ(again[i], i) << std::hex << i << " with scale " << scale;
      }
    }
  }
}

// Between every two neighbours: the middle goes to the even one, what is beside it to the nearer.
TEST(Float16, RoundsToTheNearestAndTiesToEven) {
  for (const int sign : {0, 0x8000}) {
    for (int i = 0; i < 0x7bff; ++i) {
      const uint16_t low = sign | i, high = low + 1;
      const auto middle = static_cast<float>((Number(low) + Number(high)) / 2);
      const float below = std::nextafter(middle, 0.0f);
      const float above = std::nextafter(middle, sign == 0 ? kInfinity : -kInfinity);
      const std::vector<uint16_t> expected{low, low % 2 == 0 ? low : high, high};
      ASSERT_EQ(Encode({below, middle, above}, 1), expected) << std::hex << low;
    }
  }
}

TEST(Float16, ScalePutsTheLargestBelowTwoToTheFifteenth) {
  EXPECT_EQ(ScaleForFloat16({1.0f, -0.5f}), 0x1p-14f);
  EXPECT_EQ(ScaleForFloat16({0.0f, -1.999f}), 0x1p-14f);
  EXPECT_EQ(ScaleForFloat16({-65504.0f}), 2.0f);
  EXPECT_EQ(ScaleForFloat16({kLargest}), 0x1p113f);
  EXPECT_EQ(ScaleForFloat16({kSmallest}), 0x1p-126f);
  EXPECT_EQ(ScaleForFloat16({0.0f, -0.0f}), 1.0f);
  EXPECT_EQ(ScaleForFloat16({}), 1.0f);
  for (int e = -149; e <= 127; ++e) {
    for (const float significand : {1.0f, 1.5f, std::nextafter(2.0f, 1.0f)}) {
      const float value = std::ldexp(significand, e);
      const float scaled = value / ScaleForFloat16({0, value, -value / 2});
      EXPECT_LT(scaled, 0x1p15f) << value;
      EXPECT_GE(scaled, e >= -112 ? 0x1p14f : 0) << value;
    }
  }
}

// A loss scale of 2^0 to 2^70 on gradients of 1e-3: the relative error stays, nothing overflows.
TEST(Float16, ALossScaleMakesNoDifference) {
  Random random(1);
  std::vector<float> gradient(4096);
  for (float& value : gradient) value = static_cast<float>(1e-3 * random.Normal());
  const std::vector<uint16_t> unscaled = Encode(gradient, ScaleForFloat16(gradient));
  for (int e = 0; e <= 70; e += 5) {
    std::vector<float> scaled = gradient;
    for (float& value : scaled) value = std::ldexp(value, e);
    EXPECT_EQ(Encode(scaled, ScaleForFloat16(scaled)), unscaled) << "2^" << e;
    EXPECT_TRUE(RoundTrip(scaled).finite) << "2^" << e;
  }
}

TEST(Float16, ErrorIsTwoToTheMinusElevenOrTinyBesideTheLargest) {
  Random random(2);
  for (int trial = 0; trial < 200; ++trial) {
    std::vector<float> values(500);
    const double spread = random.Uniform(0, 30);
    for (float& value : values) {
      value = static_cast<float>(
          std::clamp<double>(random.Normal() * std::exp(spread * random.Normal()), -1e37, 1e37));
    }
    float largest = 0;
    for (const float value : values) largest = std::max(largest, std::abs(value));
    const Decoded decoded = RoundTrip(values);
    ASSERT_EQ(decoded.finite, largest < 0x1p63f);
    for (size_t i = 0; i < values.size(); ++i) {
      const double error = std::abs(static_cast<double>(decoded.values[i]) - values[i]);
      ASSERT_LE(error, std::max<double>(std::abs(values[i]) * 0x1p-11, largest * 0x1p-39)) << values[i];
    }
  }
}

// To the last bit of float32's subnormal numbers.
TEST(Float16, SmallBlocksKeepTheirSmallestValues) {
  std::vector<float> values;
  for (int i = 0; i < 2048; ++i) values.push_back(i * kSmallest);
  EXPECT_EQ(RoundTrip(values).values, values);
}

TEST(Float16, OnlyWhatIsNotFiniteDecodesToSuch) {
  for (const float large : {kLargest, std::nextafter(kLargest, 0.0f), 0x1.ffcp127f, 0x1.ffep127f, 0x1p127f,
                            std::nextafter(0x1p127f, 0.0f), 65504.0f, 65520.0f}) {
    for (const float value : {large, -large}) {
      const Decoded decoded = RoundTrip({1.0f, value, 0.0f});
      EXPECT_EQ(decoded.finite, large < 0x1p63f) << value;
      EXPECT_NEAR(decoded.values[1] / value, 1, 0x1p-10) << value;
    }
  }
  for (const float bad : {kInfinity, -kInfinity, kNan, -kNan}) {
    // In the vectorised part and in the rest.
    for (const size_t at : {0u, 7u, 8u, 17u}) {
      std::vector<float> values(18, 1.0f);
      values[at] = bad;
      const Decoded decoded = RoundTrip(values);
      EXPECT_FALSE(decoded.finite) << bad << " at " << at;
      for (size_t i = 0; i < values.size(); ++i) EXPECT_EQ(std::isfinite(decoded.values[i]), i != at);
      EXPECT_EQ(std::isnan(decoded.values[at]), std::isnan(bad));
    }
  }
}

TEST(Float16, AScaleThatLiesIsSeen) {
  EXPECT_FALSE(Decode({0x7bff}, kLargest).finite);
  EXPECT_FALSE(Decode(std::vector<uint16_t>(16, 0x7bff), kLargest).finite);
}

TEST(Float16, EveryLength) {
  for (size_t n = 0; n < 70; ++n) {
    std::vector<float> values(n);
    for (size_t i = 0; i < n; ++i) values[i] = static_cast<float>(i) - 20;
    std::string bytes(2 * n + 1, 'x');
    EncodeFloat16(values, 0.5f, bytes.data());
    EXPECT_EQ(bytes.back(), 'x');
    bytes.pop_back();
    std::vector<float> back(n + 1, 7);
    EXPECT_TRUE(DecodeFloat16(CutPayload(bytes).view(), 0.5f, back.data()));
    EXPECT_EQ(back.back(), 7);
    back.pop_back();
    EXPECT_EQ(back, values);
  }
}

}  // namespace
}  // namespace catchment
