// The rounding of factors, by hand-made values and against the processor's own conversion, and products of
// rounded factors against double precision.
#include "kernels/cuda/precision.h"

#include <immintrin.h>

#include <cmath>
#include <limits>
#include <tuple>
#include <vector>

#include "common/base/random.h"
#include "gtest/gtest.h"
#include "kernels/cuda/factor.h"
#include "kernels/cuda/gemm.h"

namespace catchment::cuda {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(RoundToBfloat16, TiesGoToEven) {
  EXPECT_EQ(RoundToBfloat16(1), 0x3f80);
  EXPECT_EQ(RoundToBfloat16(-1), 0xbf80);
  EXPECT_EQ(RoundToBfloat16(-0.0f), 0x8000);
  EXPECT_EQ(RoundToBfloat16(1 + 0x1p-8f), 0x3f80) << "half of the last bit, 2^-7";
  EXPECT_EQ(RoundToBfloat16(1 + 0x1p-8f + 0x1p-20f), 0x3f81);
  EXPECT_EQ(RoundToBfloat16(1 + 3 * 0x1p-8f), 0x3f82);
  EXPECT_EQ(RoundToBfloat16(std::numeric_limits<float>::max()), 0x7f80) << "infinity";
  EXPECT_EQ(RoundToBfloat16(-kInfinity), 0xff80);
  EXPECT_EQ(RoundToBfloat16(0x1p-133f), 0x0001) << "the smallest one";
  EXPECT_TRUE(std::isnan(FromBfloat16(RoundToBfloat16(NAN))));
  EXPECT_TRUE(std::isnan(FromBfloat16(RoundToBfloat16(std::bit_cast<float>(0x7f800001u))))) << "its low bits";
}

TEST(RoundToFloat16, TiesGoToEven) {
  EXPECT_EQ(RoundToFloat16(1), 0x3c00);
  EXPECT_EQ(RoundToFloat16(-2), 0xc000);
  EXPECT_EQ(RoundToFloat16(-0.0f), 0x8000);
  EXPECT_EQ(RoundToFloat16(0.1f), 0x2e66);
  EXPECT_EQ(RoundToFloat16(1 + 0x1p-11f), 0x3c00) << "half of the last bit, 2^-10";
  EXPECT_EQ(RoundToFloat16(1 + 3 * 0x1p-11f), 0x3c02);
}

TEST(RoundToFloat16, WhatIsTooLargeBecomesInfinity) {
  EXPECT_EQ(RoundToFloat16(65504), 0x7bff) << "the largest one";
  EXPECT_EQ(RoundToFloat16(65519.99f), 0x7bff);
  EXPECT_EQ(RoundToFloat16(65520), 0x7c00);
  EXPECT_EQ(RoundToFloat16(-1e10f), 0xfc00);
  EXPECT_EQ(RoundToFloat16(kInfinity), 0x7c00);
  EXPECT_TRUE(std::isnan(FromFloat16(RoundToFloat16(NAN))));
}

TEST(RoundToFloat16, WhatIsSmallLosesBitsOneByOne) {
  EXPECT_EQ(RoundToFloat16(0x1p-14f), 0x0400) << "the smallest with eleven bits";
  EXPECT_EQ(RoundToFloat16(0x1p-14f - 0x1p-25f), 0x0400) << "a tie";
  EXPECT_EQ(RoundToFloat16(0x1p-14f - 0x1p-24f), 0x03ff);
  EXPECT_EQ(RoundToFloat16(0x1p-24f), 0x0001) << "the smallest one";
  EXPECT_EQ(RoundToFloat16(3 * 0x1p-25f), 0x0002) << "a tie";
  EXPECT_EQ(RoundToFloat16(0x1p-25f), 0x0000) << "a tie";
  EXPECT_EQ(RoundToFloat16(1.001f * 0x1p-25f), 0x0001);
}

TEST(RoundToFloat16, IsTheProcessors) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = FromFloat16(static_cast<uint16_t>(bits));
    if (std::isnan(value)) continue;
    ASSERT_EQ(value, _cvtsh_ss(static_cast<uint16_t>(bits))) << bits;
    ASSERT_EQ(RoundToFloat16(value), bits);
  }
  Random random(1);
  for (int i = 0; i < 100000; ++i) {
    const auto value = static_cast<float>(std::ldexp(random.Uniform(-1, 1), static_cast<int>(i % 44) - 27));
    ASSERT_EQ(RoundToFloat16(value), _cvtss_sh(value, _MM_FROUND_TO_NEAREST_INT)) << value;
  }
}

TEST(RoundToTf32, KeepsElevenBits) {
  EXPECT_EQ(RoundToTf32(1 + 0x1p-11f), 1);
  EXPECT_EQ(RoundToTf32(1 + 3 * 0x1p-11f), 1 + 0x1p-9f);
  EXPECT_EQ(RoundToTf32(0x1.ffep100f), 0x1.ffcp100f + 0x1p90f) << "eleven bits as they are";
  EXPECT_EQ(RoundToTf32(0x1.fffp100f), 0x1p101f);
  EXPECT_EQ(RoundToTf32(-kInfinity), -kInfinity);
}

struct Product {
  Precision precision;
  int bits;  // significant ones
};

class ProductTest : public testing::TestWithParam<std::tuple<Product, bool, bool>> {};

std::vector<float> RandomValues(int64_t size, uint64_t seed) {
  Random random(seed);
  std::vector<float> values(size);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

// Each factor is off by at most u = 2^-bits of itself, so each sum by (2 u + u^2) of its summands'
// magnitudes; and if nothing were rounded, by no more than the float32 that it is stored in.
TEST_P(ProductTest, ErrsByTheFactorsRounding) {
  const auto& [product, transpose_a, transpose_b] = GetParam();
  constexpr int64_t kM = 5, kN = 11, kK = 67;
  const std::vector<float> a = RandomValues(kM * kK, 1), b = RandomValues(kK * kN, 2);
  Device device(0, product.precision);
  Factor first(&device, transpose_a ? kK : kM, transpose_a ? kM : kK);
  Factor second(&device, transpose_b ? kN : kK, transpose_b ? kK : kN);
  Gemm gemm(&device, {.transpose_a = transpose_a,
                      .transpose_b = transpose_b,
                      .m = kM,
                      .n = kN,
                      .k = kK,
                      .lda = first.stride(),
                      .ldb = second.stride(),
                      .ldc = kN,
                      .a_alignment = 4,
                      .b_alignment = 4,
                      .c_alignment = 4});
  first.Take(a.data());
  second.Take(b.data());
  std::vector<float> c(kM * kN);
  gemm.Run(first.data(), second.data(), nullptr, c.data());

  const double u = std::ldexp(1.0, -product.bits);
  double largest_share = 0;
  for (int64_t i = 0; i < kM; ++i) {
    for (int64_t j = 0; j < kN; ++j) {
      double want = 0, magnitude = 0;
      for (int64_t k = 0; k < kK; ++k) {
        const double summand = double{transpose_a ? a[k * kM + i] : a[i * kK + k]} *
                               (transpose_b ? b[j * kK + k] : b[k * kN + j]);
        want += summand;
        magnitude += std::fabs(summand);
      }
      const double error = std::fabs(c[i * kN + j] - want), bound = (2 * u + u * u) * magnitude;
      EXPECT_LE(error, bound) << "at " << i << ", " << j;
      largest_share = std::max(largest_share, error / bound);
    }
  }
  EXPECT_GT(largest_share, 0.01) << "it rounds to fewer bits";
}

INSTANTIATE_TEST_SUITE_P(
    , ProductTest,
    testing::Combine(testing::Values(Product{Precision::kFloat32, 24}, Product{Precision::kTf32, 11},
                                     Product{Precision::kBfloat16, 8}, Product{Precision::kFloat16, 11}),
                     testing::Bool(), testing::Bool()));

}  // namespace
}  // namespace catchment::cuda
