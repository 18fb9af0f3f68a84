// A shard decodes payloads in the job's codecs and encodes its answers with them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "common/codec/push_encoder.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr int64_t kValues = 9;

v1::Job JobWith(v1::Compression::Codec push, v1::Compression::Codec pull) {
  v1::Job job = GradientJob(false);
  job.mutable_compression()->set_push(push);
  job.mutable_compression()->set_pull(pull);
  job.mutable_compression()->set_top_k_fraction(0.3f);
  return job;
}

// 1 + 1/1024 is rounded by BFLOAT16 alone.
std::vector<float> Gradient() { return {1 + 1.0f / 1024, -2, 0.5f, 64, -128, 0, 1.0f / 4096, 3, 0.25f}; }

struct Encoded {
  std::string bytes;
  float scale = 1;
};

Encoded Encode(const v1::Job& job, const std::vector<float>& values) {
  PushEncoder encoder(job.compression(), static_cast<int64_t>(values.size()));
  Encoded encoded;
  encoded.bytes.resize(encoder.codec().PayloadBytes(static_cast<int64_t>(values.size())));
  encoded.scale = encoder.Encode(0, values, 1, encoded.bytes.data());
  return encoded;
}

std::vector<float> Decode(const Codec& codec, absl::string_view bytes, float scale) {
  std::vector<float> values(kValues);
  const auto finite = codec.Decode(PayloadView({&bytes, 1}, 0, bytes.size()), scale, absl::MakeSpan(values));
  EXPECT_TRUE(finite.ok()) << finite.status();
  return values;
}

struct OneBlock {
  explicit OneBlock(const v1::Job& job) : harness(job, kValues, kValues, {0}) {}

  absl::Status Handle(v1::Block::Operation operation, uint64_t sequence, uint64_t version,
                      const Encoded& encoded) {
    BlockHeader header{.operation = operation,
                       .sequence = sequence,
                       .version = version,
                       .block = 0,
                       .samples = 1,
                       .steps = sequence};
    header.scale = encoded.scale;
    Request request = MakeRequest(0, IncarnationOf(0), header, std::make_shared<NamedSink>("worker 0"));
    const absl::string_view bytes = encoded.bytes;
    absl::Status status = harness.shard().ReadPayload(PayloadView({&bytes, 1}, 0, bytes.size()), header.scale,
                                                      &request.contribution);
    if (status.ok()) status = harness.shard().Handle(std::move(request), /*now=*/0, &answers);
    return status;
  }
  std::string BytesOf(const Answer& answer) {
    return {reinterpret_cast<const char*>(answer.payload->data()),
            static_cast<size_t>(answer.payload->bytes())};
  }

  ShardHarness harness;
  std::vector<Answer> answers;
};

class PushCodecTest : public testing::TestWithParam<v1::Compression::Codec> {};

TEST_P(PushCodecTest, ContributionIsWhatTheCodecSaysAndItsBytesAreCounted) {
  const v1::Job job = JobWith(GetParam(), v1::Compression::FLOAT32);
  OneBlock shard(job);
  const Encoded encoded = Encode(job, Gradient());
  ASSERT_TRUE(shard.Handle(v1::Block::PUSH, 1, 0, encoded).ok());
  std::vector<float> expected = Decode(Codec::ForPush(job.compression()), encoded.bytes, encoded.scale);
  for (float& value : expected) value = 0 - value;
  EXPECT_EQ(shard.harness.shard().Weights(), expected);
  EXPECT_EQ(shard.harness.shard().Report().bytes_pushed(), encoded.bytes.size());
  ASSERT_EQ(shard.answers.size(), 1u);
  EXPECT_EQ(shard.answers[0].header.scale, 1) << "an answer does not repeat a request's scale";
  EXPECT_EQ(shard.answers[0].header.fate, v1::Block::APPLIED);
}

TEST_P(PushCodecTest, PayloadOfAnotherSizeIsRefused) {
  const v1::Job job = JobWith(GetParam(), v1::Compression::FLOAT32);
  OneBlock shard(job);
  Encoded encoded = Encode(job, Gradient());
  encoded.bytes.push_back('\0');
  const absl::Status status = shard.Handle(v1::Block::PUSH, 1, 0, encoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("block 0 of shard 0: a " + v1::Compression::Codec_Name(GetParam()) + " payload"));
  EXPECT_EQ(shard.harness.shard().version(), 0u);
}

TEST_P(PushCodecTest, OnlyWhatIsNotFiniteIsRefusedAsSuch) {
  for (float value :
       {1e18f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    const v1::Job job = JobWith(GetParam(), v1::Compression::FLOAT32);
    OneBlock shard(job);
    std::vector<float> gradient = Gradient();
    gradient[4] = value;
    ASSERT_TRUE(shard.Handle(v1::Block::PUSH, 1, 0, Encode(job, gradient)).ok());
    EXPECT_EQ(shard.answers.at(0).header.fate, value == 1e18f ? v1::Block::APPLIED : v1::Block::NON_FINITE)
        << value;
  }
}

INSTANTIATE_TEST_SUITE_P(All, PushCodecTest,
                         testing::Values(v1::Compression::FLOAT32, v1::Compression::BFLOAT16,
                                         v1::Compression::FLOAT16, v1::Compression::TOP_K,
                                         v1::Compression::INT8, v1::Compression::E2M1, v1::Compression::E3M0),
                         [](const auto& info) { return v1::Compression::Codec_Name(info.param); });

class PullCodecTest : public testing::TestWithParam<v1::Compression::Codec> {};

TEST_P(PullCodecTest, AnswersAreTheCentersEncodingAndTheCenterStaysFloat32) {
  const v1::Job job = JobWith(v1::Compression::FLOAT32, GetParam());
  const Codec codec = Codec::ForPull(job.compression());
  OneBlock shard(job);
  ASSERT_TRUE(shard.Handle(v1::Block::PULL, 0, 1, {}).ok());  // waits
  ASSERT_TRUE(shard.Handle(v1::Block::PUSH_PULL, 1, 0, Encode(job, Gradient())).ok());
  ASSERT_TRUE(shard.Handle(v1::Block::PULL, 0, 1, {"", 7}).ok());
  ASSERT_TRUE(shard.Handle(v1::Block::PUSH_PULL, 1, 0, Encode(job, Gradient())).ok());  // again

  std::vector<float> center = Gradient();
  for (float& value : center) value = 0 - value;
  EXPECT_EQ(shard.harness.shard().Weights(), center);
  std::string bytes(codec.PayloadBytes(kValues), '\0');
  const float scale = codec.Encode(center, bytes.data());
  ASSERT_EQ(shard.answers.size(), 4u);
  for (const Answer& answer : shard.answers) {
    EXPECT_EQ(shard.BytesOf(answer), bytes);
    EXPECT_EQ(answer.header.scale, scale);
  }
  EXPECT_EQ(shard.answers[0].payload.get(), shard.answers[1].payload.get()) << "one update is encoded once";
  EXPECT_EQ(shard.harness.shard().Report().bytes_pulled(), 4 * bytes.size());
}

INSTANTIATE_TEST_SUITE_P(All, PullCodecTest,
                         testing::Values(v1::Compression::FLOAT32, v1::Compression::BFLOAT16,
                                         v1::Compression::FLOAT16),
                         [](const auto& info) { return v1::Compression::Codec_Name(info.param); });

}  // namespace
}  // namespace catchment
