#include "common/codec/scaled_groups.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

#include "tests/common/codec/payloads.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using Floats = std::vector<float>;

class ScaledGroups : public testing::TestWithParam<v1::Compression::Codec> {
 protected:
  std::string Encode(const Floats& gradient, Floats* residual, float decay = 1) const {
    std::string bytes(format_.PayloadBytes(gradient.size()), 'x');
    EncodeScaledGroups(format_, gradient, decay, absl::MakeSpan(*residual), bytes.data());
    return bytes;
  }
  Floats Decode(const std::string& bytes, size_t n) const {
    Floats values(n, 99);
    const auto finite = DecodeScaledGroups(format_, CutPayload(bytes).view(), absl::MakeSpan(values));
    EXPECT_TRUE(finite.ok()) << finite.status();
    return values;
  }
  std::string Error(const std::string& bytes, size_t n) const {
    Floats values(n);
    return std::string(
        DecodeScaledGroups(format_, CutPayload(bytes).view(), absl::MakeSpan(values)).status().message());
  }
  bool is_int8() const { return GetParam() == v1::Compression::INT8; }

  const GroupFormat& format_ = *FindGroupFormat(GetParam());
};

INSTANTIATE_TEST_SUITE_P(Codec, ScaledGroups,
                         testing::Values(v1::Compression::INT8, v1::Compression::E2M1, v1::Compression::E3M0),
                         [](const auto& info) { return v1::Compression::Codec_Name(info.param); });

std::string Scale(float scale) { return BytesOf(Floats{scale}); }

Floats Normals(size_t n, uint64_t seed, double scale = 1) {
  Random random(seed);
  Floats values(n);
  for (float& value : values) value = static_cast<float>(scale * random.Normal());
  return values;
}

double Energy(const Floats& values) {
  double sum = 0;
  for (const float value : values) sum += 1.0 * value * value;
  return sum;
}

TEST(ScaledGroupsTest, OtherCodecsHaveNoGroups) {
  EXPECT_EQ(FindGroupFormat(v1::Compression::FLOAT16), nullptr);
  EXPECT_EQ(FindGroupFormat(v1::Compression::TOP_K), nullptr);
}

TEST(ScaledGroupsTest, BytesOfShortGroups) {
  const GroupFormat& int8 = *FindGroupFormat(v1::Compression::INT8);
  const GroupFormat& e2m1 = *FindGroupFormat(v1::Compression::E2M1);
  EXPECT_EQ(int8.PayloadBytes(1), 5u);
  EXPECT_EQ(int8.PayloadBytes(256), 260u);
  EXPECT_EQ(int8.PayloadBytes(257), 265u);
  EXPECT_EQ(e2m1.PayloadBytes(1), 5u);
  EXPECT_EQ(e2m1.PayloadBytes(128), 68u);
  EXPECT_EQ(e2m1.PayloadBytes(129), 73u);
  EXPECT_EQ(e2m1.PayloadBytes(131), 74u);
}

TEST_P(ScaledGroups, SmallExample) {
  const Floats gradient{6, -3, 0.25f, -0.1f, 0};
  Floats residual(5);
  const std::string bytes = Encode(gradient, &residual);
  if (is_int8()) {
    EXPECT_EQ(bytes, Scale(6.0f / 127) + std::string("\x7f\xc0\x05\xfe\x00", 5));
    return;
  }
  const bool e2m1 = GetParam() == v1::Compression::E2M1;
  EXPECT_EQ(bytes,
            e2m1 ? Scale(1) + std::string("\xd7\x01\x00", 3) : Scale(6) + std::string("\xe7\x92\x00", 3));
  const Floats sent = e2m1 ? Floats{6, -3, 0.5f, 0, 0} : Floats{6, -3, 0.1875f, -0.09375f, 0};
  EXPECT_EQ(Decode(bytes, 5), sent);
  for (size_t i = 0; i < 5; ++i) EXPECT_EQ(residual[i], gradient[i] - sent[i]) << i;
}

// Levels are symmetric and the nearest level is chosen, so that no value is further from its own than half of
// the largest distance of two levels.
TEST_P(ScaledGroups, ErrorsAreBounded) {
  const float bound = is_int8() ? 0.5f / 127 : GetParam() == v1::Compression::E2M1 ? 1.0f / 6 : 0.25f;
  for (const double scale : {1e-25, 1e-3, 1.0, 1e30}) {
    const Floats gradient = Normals(1000, 1, scale);
    Floats residual(1000);
    Encode(gradient, &residual);
    for (size_t begin = 0; begin < 1000; begin += format_.group) {
      const size_t end = std::min<size_t>(1000, begin + format_.group);
      float largest = 0;
      for (size_t i = begin; i < end; ++i) largest = std::max(largest, std::fabs(gradient[i]));
      for (size_t i = begin; i < end; ++i) ASSERT_LE(std::fabs(residual[i]), 1.0001f * bound * largest) << i;
    }
  }
}

TEST_P(ScaledGroups, ResidualHasLessEnergyThanTheSum) {
  Floats residual(5000);
  const double most = is_int8() ? 0.0002 : GetParam() == v1::Compression::E2M1 ? 0.015 : 0.045;
  for (int push = 0; push < 20; ++push) {
    const Floats gradient = Normals(residual.size(), push);
    Floats sum = residual;
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += gradient[i];
    Encode(gradient, &residual);
    EXPECT_LT(Energy(residual), most * Energy(sum)) << "push " << push;
    EXPECT_GT(Energy(residual), 0.2 * most * Energy(sum)) << "push " << push;
  }
}

// With decay 1 nothing is lost: what was sent and what is left are all gradients together.
TEST_P(ScaledGroups, SentAndResidualAreAllGradients) {
  const size_t n = 300;
  Floats residual(n);
  std::vector<double> gradients(n), sent(n);
  for (int push = 0; push < 50; ++push) {
    const Floats gradient = Normals(n, push);
    const Floats values = Decode(Encode(gradient, &residual), n);
    for (size_t i = 0; i < n; ++i) {
      gradients[i] += gradient[i];
      sent[i] += values[i];
    }
  }
  for (size_t i = 0; i < n; ++i) ASSERT_NEAR(sent[i] + residual[i], gradients[i], 1e-4) << i;
}

TEST_P(ScaledGroups, DecayShrinksTheResidualFirst) {
  Floats residual(3, 8);
  EXPECT_EQ(Decode(Encode({0, 0, 0}, &residual, 0.75f), 3), (Floats{6, 6, 6}));
  EXPECT_EQ(residual, (Floats{0, 0, 0}));
}

TEST_P(ScaledGroups, MinusZeroIsNotWrittenAndIsReadAsZero) {
  Floats residual(2);
  const std::string bytes = Encode({1, -0x1p-20f}, &residual);
  EXPECT_EQ(residual[1], -0x1p-20f);
  EXPECT_FALSE(std::signbit(Decode(bytes, 2)[1]));
  if (is_int8()) return;
  EXPECT_EQ(bytes.back(), 7);
  const Floats values = Decode(Scale(1) + "\x88", 2);
  EXPECT_EQ(values, (Floats{0, 0}));
  EXPECT_FALSE(std::signbit(values[0]) || std::signbit(values[1]));
}

TEST_P(ScaledGroups, TinyGroupsStayInTheResidual) {
  const float least = 0x1p-100f, below = std::nextafter(least, 0.0f);
  Floats residual(2);
  EXPECT_EQ(Encode({below, -below}, &residual), std::string(format_.PayloadBytes(2), '\0'));
  EXPECT_EQ(residual, (Floats{below, -below}));
  EXPECT_NE(Decode(Encode({below, 0}, &residual), 2)[0], 0) << "the sum is large enough";
}

// A group without NaN or infinity is encoded as usual, but no residual changes.
TEST_P(ScaledGroups, BlockThatIsNotFiniteDecodesToNanAndLeavesTheResidual) {
  const float largest = std::numeric_limits<float>::max();
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity(), largest}) {
    for (const size_t at : {size_t{0}, size_t{300}}) {
      Floats gradient(301, 1e30f), residual(301, 2);
      gradient[at] = bad;
      residual[at] = largest;
      const Floats before = residual;
      const Floats values = Decode(Encode(gradient, &residual), 301);
      EXPECT_TRUE(std::isnan(values[at])) << bad;
      EXPECT_TRUE(std::isfinite(values[300 - at])) << bad;
      EXPECT_EQ(residual, before);
    }
  }
}

// 127 * (s / 127) can be rounded to infinity.
TEST_P(ScaledGroups, LargestFloatIsSentOrRefusedButDoesNotBreakTheResidual) {
  const float largest = std::numeric_limits<float>::max();
  float s = largest;
  for (int i = 0; i < 1000; ++i, s = std::nextafter(s, 0.0f)) {
    Floats residual(2, 1);
    const Floats values = Decode(Encode({s, -s}, &residual), 2);
    ASSERT_TRUE(std::isfinite(residual[0]) && std::isfinite(residual[1])) << s;
    if (!std::isfinite(values[0])) {
      ASSERT_TRUE(is_int8()) << s;
      ASSERT_GT(s, 0.999f * largest);
      ASSERT_EQ(residual, (Floats{1, 1}));
    }
  }
}

TEST_P(ScaledGroups, WrongPayloadsAreNamed) {
  EXPECT_EQ(Error(Scale(0) + std::string(2, '\0'), is_int8() ? 2 : 3), "");
  EXPECT_THAT(Error(Scale(-1) + std::string(1, '\0'), 1),
              HasSubstr("scale 0 of the payload is -1; it must be 0 or above"));
  std::string second = Scale(1) + Scale(-std::numeric_limits<float>::infinity());
  second.resize(format_.PayloadBytes(format_.group + 1));
  EXPECT_THAT(Error(second, format_.group + 1), HasSubstr("scale 1 of the payload is -inf"));
  if (is_int8()) {
    EXPECT_EQ(Error(Scale(1) + "\x81\x7f", 2), "");
    EXPECT_THAT(Error(Scale(1) + "\x7f\x80", 2), HasSubstr("group 0 of the payload has the code -128"));
  } else {
    EXPECT_EQ(Error(Scale(1) + "\xff\x0f", 3), "");
    EXPECT_THAT(Error(Scale(1) + "\xff\x1f", 3), HasSubstr("the last 4 bits of the payload are 1"));
  }
}

TEST_P(ScaledGroups, ScalesOfOthersAreNotTrusted) {
  const std::string code = is_int8() ? "\x7f" : "\x07";
  for (const float scale :
       {std::nanf(""), std::numeric_limits<float>::infinity(), std::numeric_limits<float>::max()}) {
    Floats values(1);
    const std::string bytes = Scale(scale) + code;
    const auto finite = DecodeScaledGroups(format_, CutPayload(bytes).view(), absl::MakeSpan(values));
    ASSERT_TRUE(finite.ok()) << finite.status();
    EXPECT_EQ(*finite, std::abs(values[0]) < 0x1p63f) << scale;
  }
}

}  // namespace
}  // namespace catchment
