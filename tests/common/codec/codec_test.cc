#include "common/codec/codec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "common/codec/push_encoder.h"
#include "common/codec/scaled_groups.h"
#include "tests/common/codec/payloads.h"

namespace catchment {
namespace {

v1::Compression Push(v1::Compression::Codec kind) {
  v1::Compression compression;
  compression.set_push(kind);
  compression.set_pull(v1::Compression::FLOAT32);
  if (kind == v1::Compression::TOP_K) compression.set_top_k_fraction(0.2f);
  return compression;
}

struct Payload {
  std::string bytes;
  float scale;
};

Payload Encode(const v1::Compression& compression, const std::vector<float>& values) {
  PushEncoder encoder(compression, values.size());
  Payload payload{std::string(encoder.codec().PayloadBytes(values.size()), '\0')};
  payload.scale = encoder.Encode(0, values, 1, payload.bytes.data());
  return payload;
}

class EveryCodec : public ::testing::TestWithParam<v1::Compression::Codec> {
 protected:
  absl::StatusOr<bool> Decode(const Payload& payload, const std::vector<size_t>& cuts = {}) {
    values_.assign(values_.size(), 99);
    return codec_.Decode(CutPayload(payload.bytes, cuts).view(), payload.scale, absl::MakeSpan(values_));
  }
  std::string Error(const Payload& payload) { return std::string(Decode(payload).status().message()); }
  Payload Encode(const std::vector<float>& values) { return catchment::Encode(compression_, values); }

  const v1::Compression compression_ = Push(GetParam());
  const Codec codec_ = Codec::ForPush(compression_);
  const std::vector<float> numbers_{1, -0.5f, 0, 3, 4, -7, 8, 0.25f, 9, 10, 11};
  std::vector<float> values_ = std::vector<float>(numbers_.size());
};

INSTANTIATE_TEST_SUITE_P(Codec, EveryCodec,
                         ::testing::Values(v1::Compression::FLOAT32, v1::Compression::BFLOAT16,
                                           v1::Compression::FLOAT16, v1::Compression::TOP_K,
                                           v1::Compression::INT8, v1::Compression::E2M1,
                                           v1::Compression::E3M0),
                         [](const auto& info) { return v1::Compression::Codec_Name(info.param); });

TEST_P(EveryCodec, TakesPayloadsHoweverTheyAreCut) {
  const Payload payload = Encode(numbers_);
  ASSERT_TRUE(Decode(payload).value());
  const std::vector<float> expected = values_;
  if (GetParam() == v1::Compression::TOP_K) {
    EXPECT_EQ(expected, (std::vector<float>{0, 0, 0, 0, 0, 0, 0, 0, 0, 10, 11}));
  } else if (const GroupFormat* format = FindGroupFormat(GetParam())) {
    const float bound = 11 * (format->bits == 8 ? 0.5f / 127 : 0.25f);
    for (size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(expected[i], numbers_[i], bound) << i;
  } else {
    EXPECT_EQ(expected, numbers_) << "all have few bits";
  }
  const size_t size = payload.bytes.size();
  for (size_t first = 0; first <= size; ++first) {
    for (size_t second = first; second <= size; ++second) {
      const absl::StatusOr<bool> finite = Decode(payload, {first, second});
      ASSERT_TRUE(finite.ok()) << finite.status();
      ASSERT_TRUE(*finite);
      ASSERT_EQ(values_, expected) << "cut at " << first << " and " << second;
    }
  }
  std::vector<size_t> everywhere;
  for (size_t i = 0; i <= size; ++i) everywhere.push_back(i);
  ASSERT_TRUE(Decode(payload, everywhere).ok());
  EXPECT_EQ(values_, expected);
}

TEST_P(EveryCodec, SeesWhatIsNotFiniteWhereverItIs) {
  for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
    for (size_t at = 0; at < numbers_.size(); ++at) {
      std::vector<float> numbers = numbers_;
      numbers[at] = bad;
      const Payload payload = Encode(numbers);
      for (size_t cut = 0; cut <= payload.bytes.size(); ++cut) {
        const absl::StatusOr<bool> finite = Decode(payload, {cut});
        ASSERT_TRUE(finite.ok()) << finite.status();
        ASSERT_FALSE(*finite) << bad << " at " << at << ", cut at " << cut;
        ASSERT_FALSE(std::isfinite(values_[at]));
      }
    }
  }
}

TEST_P(EveryCodec, NamesAWrongSize) {
  const Payload right = Encode(numbers_);
  for (size_t size = 0; size < 2 * right.bytes.size(); ++size) {
    if (size == right.bytes.size()) continue;
    EXPECT_EQ(Error({std::string(size, '\0'), right.scale}),
              absl::StrCat("a ", v1::Compression::Codec_Name(GetParam()), " payload of 11 values has ",
                           right.bytes.size(), " bytes, but received ", size));
  }
}

TEST_P(EveryCodec, NamesAWrongScale) {
  const Payload right = Encode(numbers_);
  const bool scaled = GetParam() == v1::Compression::FLOAT16;
  for (const float scale : {0.0f, -1.0f, std::nanf(""), std::numeric_limits<float>::infinity()}) {
    EXPECT_NE(Error({right.bytes, scale}), "") << scale;
  }
  EXPECT_EQ(Error({right.bytes, -1}), scaled ? "scale is -1; it must be a number above 0"
                                             : absl::StrCat("a ", v1::Compression::Codec_Name(GetParam()),
                                                            " payload has no scale, but received scale -1"));
  EXPECT_EQ(Error({right.bytes, 2}).empty(), scaled);
}

// Any bytes of the right size are refused, or are values that are looked at one by one.
TEST_P(EveryCodec, SurvivesGarbage) {
  Random random(5);
  int refused = 0, finite = 0;
  for (int i = 0; i < 20000; ++i) {
    Payload payload = Encode(numbers_);
    const uint64_t flips = random.Below(5);
    for (uint64_t f = 0; f < flips; ++f) {
      payload.bytes[random.Below(payload.bytes.size())] = static_cast<char>(random.Next());
    }
    const absl::StatusOr<bool> got = Decode(payload, RandomCuts(payload.bytes.size(), &random));
    if (!got.ok()) {
      ++refused;
      continue;
    }
    bool all = true;
    for (const float value : values_) all &= std::abs(value) < 0x1p63f;
    ASSERT_EQ(*got, all);
    finite += all;
  }
  // Floats of any bits are values.
  EXPECT_EQ(refused > 300, HasErrorFeedback(GetParam())) << refused;
  EXPECT_GT(finite, 1000);
}

TEST(Codec, BytesAreKnownBeforehand) {
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::FLOAT32)).PayloadBytes(1000), 4000);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::BFLOAT16)).PayloadBytes(1000), 2000);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::FLOAT16)).PayloadBytes(1000), 2000);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::TOP_K)).PayloadBytes(1000), 1600);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::INT8)).PayloadBytes(1000), 1000 + 4 * 4);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::E2M1)).PayloadBytes(1000), 500 + 4 * 8);
  EXPECT_EQ(Codec::ForPush(Push(v1::Compression::E3M0)).PayloadBytes(1001), 501 + 4 * 8);
}

TEST_P(EveryCodec, ZerosAreAPayload) {
  Payload payload{std::string(codec_.PayloadBytes(values_.size()), 'x'), 1};
  codec_.EncodeZeros(values_.size(), payload.bytes.data());
  EXPECT_TRUE(Decode(payload).value());
  EXPECT_EQ(values_, std::vector<float>(values_.size()));
}

TEST(Codec, PushAndPullAreEachTheirOwn) {
  v1::Compression compression = Push(v1::Compression::TOP_K);
  compression.set_pull(v1::Compression::BFLOAT16);
  EXPECT_EQ(Codec::ForPush(compression).kind(), v1::Compression::TOP_K);
  EXPECT_EQ(Codec::ForPull(compression).kind(), v1::Compression::BFLOAT16);
  EXPECT_FALSE(Codec::ForPull(compression).is_plain());
  EXPECT_TRUE(Codec::ForPull(Push(v1::Compression::TOP_K)).is_plain());
}

TEST(Codec, PulledWeightsComeBack) {
  for (const auto kind : {v1::Compression::FLOAT32, v1::Compression::BFLOAT16, v1::Compression::FLOAT16}) {
    v1::Compression compression;
    compression.set_pull(kind);
    const Codec codec = Codec::ForPull(compression);
    const std::vector<float> weights{0.5f, -2, 1e18f, 0};
    std::string bytes(codec.PayloadBytes(weights.size()), '\0');
    const float scale = codec.Encode(weights, bytes.data());
    std::vector<float> got(weights.size());
    ASSERT_TRUE(codec.Decode(CutPayload(bytes).view(), scale, absl::MakeSpan(got)).value());
    EXPECT_NEAR(got[2], 1e18f, 1e18f * 0x1p-8);
    EXPECT_EQ(got[0], kind == v1::Compression::FLOAT16 ? 0 : 0.5f) << "far below the largest";
    EXPECT_EQ(got[3], 0);
  }
}

}  // namespace
}  // namespace catchment
