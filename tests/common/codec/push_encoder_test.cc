#include "common/codec/push_encoder.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <new>

#include "tests/common/codec/payloads.h"

namespace {
std::atomic<int> allocations{0};
}  // namespace

void* operator new(size_t size) {
  ++allocations;
  if (void* memory = std::malloc(size)) return memory;
  throw std::bad_alloc();
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }

namespace catchment {
namespace {

v1::Compression Push(v1::Compression::Codec kind, float fraction = 0) {
  v1::Compression compression;
  compression.set_push(kind);
  if (fraction > 0) compression.set_top_k_fraction(fraction);
  return compression;
}

// One worker and what a server makes of its payloads.
class Pushes {
 public:
  Pushes(const v1::Compression& compression, int64_t num_parameters)
      : encoder_(compression, num_parameters) {}

  std::vector<float> Push(int64_t begin, const std::vector<float>& gradient, uint32_t samples = 1) {
    bytes_.resize(encoder_.codec().PayloadBytes(gradient.size()));
    const float scale = encoder_.Encode(begin, gradient, samples, bytes_.data());
    std::vector<float> got(gradient.size());
    const auto finite = encoder_.codec().Decode(CutPayload(bytes_).view(), scale, absl::MakeSpan(got));
    EXPECT_TRUE(finite.ok()) << finite.status();
    return got;
  }

 private:
  PushEncoder encoder_;
  std::string bytes_;
};

using Floats = std::vector<float>;

TEST(PushEncoder, EveryBlockHasItsOwnResidual) {
  Pushes pushes(Push(v1::Compression::TOP_K, 0.25f), 8);
  EXPECT_EQ(pushes.Push(0, {1, 2, 3, 4}), (Floats{0, 0, 0, 4}));
  EXPECT_EQ(pushes.Push(4, {9, 8, 7, 6}), (Floats{9, 0, 0, 0}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0, 0, 3, 0}));
  EXPECT_EQ(pushes.Push(4, {0, 0, 1, 0}), (Floats{0, 8, 0, 0})) << "of the equal ones the first";
  EXPECT_EQ(pushes.Push(4, {0, 0, 0, 0}), (Floats{0, 0, 8, 0}));
}

TEST(PushEncoder, AContributionWithoutSamplesLeavesTheResidualAlone) {
  Pushes pushes(Push(v1::Compression::TOP_K, 0.25f), 4);
  EXPECT_EQ(pushes.Push(0, {1, 2, 3, 4}), (Floats{0, 0, 0, 4}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}, /*samples=*/0), (Floats{0, 0, 0, 0}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0, 0, 3, 0}));
}

TEST(PushEncoder, ARefusedGradientLeavesNoTrace) {
  Pushes pushes(Push(v1::Compression::TOP_K, 0.25f), 4);
  EXPECT_EQ(pushes.Push(0, {1, 2, 3, 4}), (Floats{0, 0, 0, 4}));
  EXPECT_TRUE(std::isnan(pushes.Push(0, {100, std::nanf(""), 100, 100})[1]));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0, 0, 3, 0}));
}

TEST(PushEncoder, ResidualDecaysWhenItIsUsed) {
  v1::Compression compression = Push(v1::Compression::TOP_K, 0.25f);
  compression.set_residual_decay(0.5f);
  Pushes pushes(compression, 4);
  EXPECT_EQ(pushes.Push(0, {1, 8, 3, 16}), (Floats{0, 0, 0, 16}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}, /*samples=*/0), (Floats{0, 0, 0, 0})) << "no decay";
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0, 4, 0, 0}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0, 0, 0.75f, 0}));
  EXPECT_EQ(pushes.Push(0, {0, 0, 0, 0}), (Floats{0.125f, 0, 0, 0}));
}

TEST(PushEncoder, RoundedValuesKeepTheirErrors) {
  Pushes pushes(Push(v1::Compression::E2M1), 6);
  EXPECT_EQ(pushes.Push(3, {6, 0.2f, -0.2f}), (Floats{6, 0, 0}));
  EXPECT_EQ(pushes.Push(0, {6, 0, 0}), (Floats{6, 0, 0})) << "another block";
  EXPECT_EQ(pushes.Push(3, {0, 0, 0}, /*samples=*/0), (Floats{0, 0, 0}));
  EXPECT_EQ(pushes.Push(3, {6, 0.2f, -0.2f}), (Floats{6, 0.5f, -0.5f}));
}

// With fraction 1 nothing is held back.
TEST(PushEncoder, AllOfThemIsFloat32) {
  Pushes pushes(Push(v1::Compression::TOP_K, 1), 4);
  const Floats gradient{1, -2, 0, 1e-20f};
  EXPECT_EQ(pushes.Push(0, gradient), gradient);
  EXPECT_EQ(pushes.Push(0, gradient), gradient);
}

TEST(PushEncoder, OtherCodecsHaveNoMemory) {
  for (const auto kind : {v1::Compression::FLOAT32, v1::Compression::BFLOAT16, v1::Compression::FLOAT16}) {
    Pushes pushes(Push(kind), 4);
    const Floats gradient{1, -2, 0, 4};
    EXPECT_EQ(pushes.Push(0, gradient), gradient);
    EXPECT_EQ(pushes.Push(0, gradient), gradient);
  }
}

// If one value is sent per push, a large noisy one with mean 0 must not suppress the other forever.
TEST(PushEncoder, SmallGradientIsSentDespiteALargeNoisyOne) {
  Pushes pushes(Push(v1::Compression::TOP_K, 0.5f), 2);
  float arrived = 0;
  for (int push = 0; push < 1000; ++push) {
    const Floats sent = pushes.Push(0, {push % 2 == 0 ? 10.0f : -10.0f, 1});
    arrived += sent[1];
  }
  EXPECT_NEAR(arrived, 1000, 20);
}

TEST(PushEncoder, AllocatesNothingInSteadyState) {
  constexpr size_t kBlock = 40000;
  for (const auto kind : {v1::Compression::FLOAT32, v1::Compression::BFLOAT16, v1::Compression::FLOAT16,
                          v1::Compression::TOP_K, v1::Compression::INT8, v1::Compression::E2M1}) {
    PushEncoder encoder(Push(kind, kind == v1::Compression::TOP_K ? 0.01f : 0), 2 * kBlock);
    const Codec& codec = encoder.codec();
    Random random(1);
    Floats gradient(kBlock), got(kBlock);
    for (float& value : gradient) value = static_cast<float>(random.Normal());
    std::string bytes(codec.PayloadBytes(kBlock), '\0');
    const absl::string_view pieces[] = {bytes};
    encoder.Encode(0, gradient, 1, bytes.data());
    const int before = allocations;
    for (int push = 0; push < 10; ++push) {
      const float scale = encoder.Encode(push % 2 * kBlock, gradient, 1, bytes.data());
      ASSERT_TRUE(*codec.Decode(PayloadView(pieces, 0, bytes.size()), scale, absl::MakeSpan(got)));
    }
    EXPECT_EQ(allocations - before, 0) << v1::Compression::Codec_Name(kind);
  }
}

}  // namespace
}  // namespace catchment
