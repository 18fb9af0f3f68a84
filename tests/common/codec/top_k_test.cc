#include "common/codec/top_k.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/common/codec/payloads.h"

namespace catchment {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kNan = std::nanf("");

struct Sent {
  std::vector<uint32_t> indices;
  std::vector<float> values;
  bool operator==(const Sent&) const = default;
};

Sent Encode(TopKEncoder* encoder, const std::vector<float>& gradient, std::vector<float>* residual, int64_t k,
            float decay = 1) {
  std::string bytes(TopKBytes(k), '\0');
  encoder->Encode(gradient, decay, absl::MakeSpan(*residual), k, bytes.data());
  return {ValuesOf<uint32_t>(bytes.substr(0, 4 * k)), ValuesOf<float>(bytes.substr(4 * k))};
}

Sent Encode(const std::vector<float>& gradient, std::vector<float>* residual, int64_t k) {
  TopKEncoder encoder;
  return Encode(&encoder, gradient, residual, k);
}

Sent EncodeOnce(const std::vector<float>& gradient, int64_t k) {
  std::vector<float> residual(gradient.size());
  return Encode(gradient, &residual, k);
}

// By sorting.
Sent Expected(const std::vector<float>& a, int64_t k) {
  std::vector<uint32_t> order(a.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](uint32_t i, uint32_t j) { return std::abs(a[i]) > std::abs(a[j]); });
  order.resize(k);
  std::sort(order.begin(), order.end());
  Sent sent{order, {}};
  for (const uint32_t i : order) sent.values.push_back(a[i]);
  return sent;
}

TEST(TopKCount, RoundsAndKeepsAtLeastOne) {
  EXPECT_EQ(TopKCount(0.25f, 10), 3);
  EXPECT_EQ(TopKCount(0.25f, 9), 2);
  EXPECT_EQ(TopKCount(0.01f, 262144), 2621);
  EXPECT_EQ(TopKCount(1e-6f, 1000), 1);
  EXPECT_EQ(TopKCount(1e-30f, 1), 1);
  EXPECT_EQ(TopKCount(1, 1), 1);
  EXPECT_EQ(TopKCount(1, 16777217), 16777217);
}

TEST(TopK, SendsTheLargestMagnitudesInTheOrderOfTheirIndices) {
  EXPECT_EQ(EncodeOnce({0.1f, -3, 2, 0, 5, -0.2f}, 3), (Sent{{1, 2, 4}, {-3, 2, 5}}));
}

TEST(TopK, OfEqualMagnitudesTheLowestIndicesGo) {
  EXPECT_EQ(EncodeOnce({1, -2, 2, -2, 2, 3}, 3), (Sent{{1, 2, 5}, {-2, 2, 3}}));
  EXPECT_EQ(EncodeOnce(std::vector<float>(40000, -1), 3), (Sent{{0, 1, 2}, {-1, -1, -1}}));
  EXPECT_EQ(EncodeOnce({0, -0.0f, 0}, 2), (Sent{{0, 1}, {0, 0}}));
}

// Distributions and sizes on both sides of where the guess begins to be made; among the distributions such
// that it misses: nearly all equal, large ones rare, large ones only where nothing is sampled, or only there.
TEST(TopK, IsWhatSortingFinds) {
  Random random(1);
  const std::vector<std::function<float(size_t)>> distributions = {
      [&](size_t) { return random.Normal(); },
      [&](size_t) { return random.Normal() * std::exp(10 * random.Normal()); },
      [&](size_t) { return random.Below(3) - 1.0; },
      [&](size_t) { return random.Below(1000) == 0 ? random.Normal() : 0; },
      [&](size_t i) { return random.Normal() * (i % 127 == 0 ? 1000 : 1); },
      [&](size_t i) { return random.Normal() * (i % 127 == 0 ? 0 : 1); },
      [&](size_t i) { return static_cast<float>(i); },
  };
  TopKEncoder encoder;
  for (size_t d = 0; d < distributions.size(); ++d) {
    for (const size_t n : {1u, 2u, 15u, 16u, 17u, 1000u, 32512u, 50000u}) {
      for (const double fraction : {0.0, 0.001, 0.01, 0.1, 0.5, 1.0}) {
        std::vector<float> gradient(n), residual(n), sum(n);
        for (size_t i = 0; i < n; ++i) {
          gradient[i] = distributions[d](i);
          residual[i] = 0.3f * distributions[d](i);
          sum[i] = residual[i] + gradient[i];
        }
        const int64_t k = TopKCount(fraction, n);
        ASSERT_EQ(Encode(&encoder, gradient, &residual, k), Expected(sum, k))
            << "distribution " << d << ", " << k << " of " << n;
      }
    }
  }
}

TEST(TopK, WhatIsNotSentIsKept) {
  std::vector<float> residual{0, 1, -2, 0};
  EXPECT_EQ(Encode({1, 0.5f, -2, 0.25f}, &residual, 1), (Sent{{2}, {-4}}));
  EXPECT_EQ(residual, (std::vector<float>{1, 1.5f, 0, 0.25f}));
  EXPECT_EQ(Encode({0, 0, 0.5f, 0}, &residual, 1), (Sent{{1}, {1.5f}}));
  EXPECT_EQ(residual, (std::vector<float>{1, 0, 0.5f, 0.25f}));
}

// The selection is made after the decay.
TEST(TopK, ResidualDecays) {
  Random random(3);
  TopKEncoder encoder;
  for (const size_t n : {3u, 1000u, 40000u}) {
    std::vector<float> gradient(n), residual(n), sum(n);
    for (size_t i = 0; i < n; ++i) {
      gradient[i] = static_cast<float>(random.Normal());
      residual[i] = static_cast<float>(3 * random.Normal());
      sum[i] = 0.3f * residual[i] + gradient[i];
    }
    const int64_t k = TopKCount(0.01f, n);
    const Sent sent = Encode(&encoder, gradient, &residual, k, 0.3f);
    EXPECT_EQ(sent, Expected(sum, k));
    for (const uint32_t i : sent.indices) sum[i] = 0;
    EXPECT_EQ(residual, sum);
  }
}

// With whole numbers every sum is exact: all that was sent and what is left are all gradients together.
TEST(TopK, NothingIsLost) {
  Random random(2);
  const size_t n = 30000;
  std::vector<float> residual(n);
  std::vector<int64_t> gradients(n), sent(n);
  TopKEncoder encoder;
  for (int push = 0; push < 60; ++push) {
    std::vector<float> gradient(n);
    for (size_t i = 0; i < n; ++i) {
      gradient[i] = std::round(1000 * random.Normal());
      gradients[i] += static_cast<int64_t>(gradient[i]);
    }
    const Sent payload = Encode(&encoder, gradient, &residual, n / 100);
    for (size_t j = 0; j < payload.indices.size(); ++j) {
      sent[payload.indices[j]] += static_cast<int64_t>(payload.values[j]);
    }
  }
  for (size_t i = 0; i < n; ++i) ASSERT_EQ(sent[i] + static_cast<int64_t>(residual[i]), gradients[i]) << i;
}

TEST(TopK, WhatIsNotFiniteIsSentAndTheResidualStays) {
  for (const float bad : {kNan, -kNan, kInfinity, -kInfinity}) {
    for (const size_t n : {5u, 20000u}) {
      std::vector<float> gradient(n, 1e30f);
      gradient[3] = bad;
      std::vector<float> residual(n, 2);
      const std::vector<float> before = residual;
      const Sent sent = Encode(gradient, &residual, 1);
      EXPECT_EQ(sent.indices, std::vector<uint32_t>{3});
      EXPECT_FALSE(std::isfinite(sent.values[0]));
      EXPECT_EQ(residual, before);
    }
  }
}

// Two finite numbers whose sum is not.
TEST(TopK, AnOverflowInTheSumIsSentToo) {
  const float large = std::numeric_limits<float>::max();
  std::vector<float> residual{1, large, 1};
  EXPECT_EQ(Encode({1, large, 1}, &residual, 1), (Sent{{1}, {kInfinity}}));
  EXPECT_EQ(residual, (std::vector<float>{1, large, 1}));
}

TEST(TopK, DecodesToAWholeBlock) {
  for (size_t n = 1; n < 40; ++n) {
    for (size_t k = 1; k <= n; ++k) {
      std::vector<float> gradient(n);
      for (size_t i = 0; i < n; ++i) gradient[i] = static_cast<float>((i * 7 + 3) % n + 1);
      std::vector<float> residual(n);
      TopKEncoder encoder;
      std::string bytes(TopKBytes(k), '\0');
      encoder.Encode(gradient, 1, absl::MakeSpan(residual), k, bytes.data());
      std::vector<float> values(n, 99);
      const auto finite = DecodeTopK(CutPayload(bytes).view(), k, absl::MakeSpan(values));
      ASSERT_TRUE(finite.ok()) << finite.status();
      EXPECT_TRUE(*finite);
      for (size_t i = 0; i < n; ++i) ASSERT_EQ(values[i] + residual[i], gradient[i]);
    }
  }
}

std::string DecodeError(const std::vector<uint32_t>& indices, size_t n) {
  const std::string bytes = BytesOf(indices) + BytesOf(std::vector<float>(indices.size(), 1));
  std::vector<float> values(n);
  return std::string(
      DecodeTopK(CutPayload(bytes).view(), indices.size(), absl::MakeSpan(values)).status().message());
}

TEST(TopK, WrongIndicesAreNamed) {
  EXPECT_EQ(DecodeError({0, 9}, 10), "");
  EXPECT_EQ(DecodeError({0, 10}, 10), "index 1 of the payload is 10, and the block has 10 values");
  EXPECT_EQ(DecodeError({0xffffffff}, 10),
            "index 0 of the payload is 4294967295, and the block has 10 values");
  EXPECT_EQ(DecodeError({2, 5, 5}, 10),
            "index 2 of the payload is 5; it must be at least 6, for indices ascend");
  EXPECT_EQ(DecodeError({2, 5, 4}, 10),
            "index 2 of the payload is 4; it must be at least 6, for indices ascend");
  EXPECT_EQ(DecodeError({9, 0}, 10),
            "index 1 of the payload is 0; it must be at least 10, for indices ascend");
}

TEST(TopK, ZerosAreAPayload) {
  std::string bytes(TopKBytes(3), 'x');
  EncodeTopKZeros(3, bytes.data());
  std::vector<float> values(7, 99);
  const auto finite = DecodeTopK(CutPayload(bytes).view(), 3, absl::MakeSpan(values));
  ASSERT_TRUE(finite.ok()) << finite.status();
  EXPECT_TRUE(*finite);
  EXPECT_EQ(values, std::vector<float>(7));
}

}  // namespace
}  // namespace catchment
