// Agreement, byte for byte, with codecs written in NumPy; golden/make_golden.py says what is in the data.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "common/codec/push_encoder.h"
#include "tests/common/codec/payloads.h"
#include "tests/conformance/golden_jobs.h"

namespace catchment {
namespace {

const nlohmann::json& Cases() {
  static const nlohmann::json& golden = ReadGolden("tests/common/codec/golden/push_codecs.json");
  return golden["cases"];
}

std::string FromDigits(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<float> FloatsOf(const nlohmann::json& digits) {
  return ValuesOf<float>(FromDigits(digits.get<std::string>()));
}

v1::Compression CompressionOf(const nlohmann::json& golden) {
  v1::Compression compression;
  v1::Compression::Codec codec;
  CHECK(v1::Compression::Codec_Parse(golden["codec"].get<std::string>(), &codec));
  compression.set_push(codec);
  compression.set_residual_decay(golden["decay"].get<float>());
  if (golden.contains("fraction")) compression.set_top_k_fraction(golden["fraction"].get<float>());
  return compression;
}

// Compares bits, but takes every NaN for the same.
void ExpectSame(const std::vector<float>& got, const std::vector<float>& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(got[i]) && std::isnan(expected[i])) continue;
    ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(expected[i]))
        << "value " << i << " is " << got[i] << ", expected " << expected[i];
  }
}

class PushCodecsGolden : public testing::TestWithParam<size_t> {};

TEST_P(PushCodecsGolden, AgreesWithNumPy) {
  const nlohmann::json& golden = Cases()[GetParam()];
  const size_t n = FloatsOf(golden["pushes"][0]["gradient"]).size();
  constexpr size_t kBegin = 3;  // the block is not the first one
  PushEncoder encoder(CompressionOf(golden), static_cast<int64_t>(kBegin + n + 1));
  const Codec& codec = encoder.codec();
  for (const nlohmann::json& push : golden["pushes"]) {
    SCOPED_TRACE(push.dump().substr(0, 200));
    std::string bytes(codec.PayloadBytes(static_cast<int64_t>(n)), 'x');
    const std::vector<float> gradient = FloatsOf(push["gradient"]);
    EXPECT_EQ(encoder.Encode(kBegin, gradient, push["samples"], bytes.data()), 1);
    ASSERT_EQ(bytes, FromDigits(push["payload"]));
    const std::vector<float> values = FloatsOf(push["values"]);
    bool all_usable = true;
    for (const float value : values) all_usable &= std::abs(value) < 0x1p63f;
    for (size_t cut = 0; cut <= bytes.size(); ++cut) {
      std::vector<float> got(n, 99);
      const auto finite = codec.Decode(CutPayload(bytes, {cut}).view(), 1, absl::MakeSpan(got));
      ASSERT_TRUE(finite.ok()) << finite.status();
      EXPECT_EQ(*finite, all_usable);
      ExpectSame(got, values);
    }
    const absl::Span<float> residual = encoder.residual();
    ExpectSame({residual.begin() + kBegin, residual.end() - 1}, FloatsOf(push["residual"]));
    EXPECT_TRUE(residual[kBegin - 1] == 0 && residual.back() == 0) << "another block's residual has changed";
  }
}

INSTANTIATE_TEST_SUITE_P(All, PushCodecsGolden, testing::Range(size_t{0}, Cases().size()),
                         [](const auto& info) {
                           const nlohmann::json& golden = Cases()[info.param];
                           std::string name =
                               golden["codec"].get<std::string>() + "_" + golden["name"].get<std::string>();
                           for (char& c : name) {
                             if (!std::isalnum(static_cast<unsigned char>(c))) c = '_';
                           }
                           return name + "_" + std::to_string(info.param);
                         });

}  // namespace
}  // namespace catchment
