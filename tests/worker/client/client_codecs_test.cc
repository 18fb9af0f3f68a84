// The client's codecs against real servers: what is sent again is the same, and what error feedback
// holds back is sent later.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "common/base/random.h"
#include "common/codec/push_encoder.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/client/relay.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 1000, kBlock = 60;  // the last block is shorter
constexpr int kServers = 2;

v1::Job JobWith(v1::Compression::Codec push, v1::Compression::Codec pull) {
  v1::Job job = GradientJob(false);
  job.mutable_compression()->set_push(push);
  job.mutable_compression()->set_pull(pull);
  job.mutable_compression()->set_top_k_fraction(0.1f);
  return job;
}

std::vector<float> Normals(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Normal());
  return values;
}

ParameterClient::Options OptionsOf(const v1::Job& job, const std::vector<std::string>& addresses) {
  ParameterClient::Options options;
  options.servers = addresses;
  options.credentials = grpc::InsecureChannelCredentials();
  options.job = "test";
  options.incarnation = IncarnationOf(0);
  options.run_id = kRunId;
  options.token = TestToken(options.incarnation);
  options.compression = job.compression();
  return options;
}

// The center after pushes of which each block is encoded once, in this order.
class Expected {
 public:
  Expected(const v1::Job& job, const ParameterLayout& layout)
      : layout_(layout), encoder_(job.compression(), kValues), weights_(kValues) {}

  void Push(const std::vector<float>& gradient) {
    for (int s = 0; s < layout_.num_shards(); ++s) {
      for (int b = 0; b < layout_.num_blocks(s); ++b) PushBlock(gradient, layout_.block(s, b));
    }
  }
  const std::vector<float>& weights() const { return weights_; }
  uint64_t bytes() const { return bytes_; }

 private:
  void PushBlock(const std::vector<float>& gradient, Range range) {
    const auto values = absl::MakeConstSpan(gradient).subspan(range.begin, range.size());
    std::string payload(encoder_.codec().PayloadBytes(range.size()), '\0');
    const float scale = encoder_.Encode(range.begin, values, 1, payload.data());
    const absl::string_view bytes = payload;
    std::vector<float> got(range.size());
    ASSERT_TRUE(
        encoder_.codec().Decode(PayloadView({&bytes, 1}, 0, bytes.size()), scale, absl::MakeSpan(got)).ok());
    for (int64_t i = 0; i < range.size(); ++i) weights_[range.begin + i] -= got[i];
    bytes_ += bytes.size();
  }

  const ParameterLayout& layout_;
  PushEncoder encoder_;
  std::vector<float> weights_;
  uint64_t bytes_ = 0;
};

class ClientCodecsTest : public testing::TestWithParam<v1::Compression::Codec> {};

TEST_P(ClientCodecsTest, EachPushReachesTheServersInItsEncoding) {
  const v1::Job job = JobWith(GetParam(), v1::Compression::FLOAT32);
  TestServers servers(job, FlatLayout(kValues, kServers, kBlock));
  servers.SetRosters({MakeRoster(0, {0})});
  SteadyClock clock;
  ParameterClient client(OptionsOf(job, servers.addresses()), &servers.layout(), &clock);
  Expected expected(job, servers.layout());
  std::vector<float> weights(kValues);
  for (uint64_t i = 0; i < 10; ++i) {
    const std::vector<float> gradient = Normals(i);
    expected.Push(gradient);
    ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    ASSERT_EQ(weights, expected.weights()) << "push " << i;
  }
  EXPECT_EQ(client.totals().bytes_pushed, expected.bytes());
}

// As bytes that are sent again differ when the block is encoded again, so would the residual and the weights.
TEST_P(ClientCodecsTest, WhatIsSentAgainIsNotEncodedAgain) {
  const v1::Job job = JobWith(GetParam(), v1::Compression::FLOAT32);
  for (const Relay::Direction direction : {Relay::kToServer, Relay::kToClient}) {
    TestServers servers(job, FlatLayout(kValues, kServers, kBlock));
    servers.SetRosters({MakeRoster(0, {0})});
    Relay relay(servers.addresses()[0]);
    SteadyClock clock;
    // The connection can be cut at a byte; pipes cannot.
    ParameterClient::Options options = OptionsOf(job, {relay.address(), servers.addresses()[1]});
    options.shared_memory = false;
    ParameterClient client(options, &servers.layout(), &clock);
    Expected expected(job, servers.layout());
    std::vector<float> weights(kValues);
    int cuts = 0;
    uint64_t seed = 0;
    for (int64_t bytes : {150, 300, 450}) {
      relay.CutAfter(direction, bytes);
      for (int i = 0; i < 4; ++i) {
        const std::vector<float> gradient = Normals(++seed);
        expected.Push(gradient);
        ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
        ASSERT_EQ(weights, expected.weights()) << "cut after " << bytes;
      }
      cuts += !relay.armed();
      relay.Disarm();
    }
    EXPECT_EQ(cuts, 3);
    EXPECT_GT(client.totals().bytes_pushed, expected.bytes()) << "nothing was sent again";
  }
}

INSTANTIATE_TEST_SUITE_P(All, ClientCodecsTest,
                         testing::Values(v1::Compression::BFLOAT16, v1::Compression::FLOAT16,
                                         v1::Compression::TOP_K, v1::Compression::INT8, v1::Compression::E2M1,
                                         v1::Compression::E3M0),
                         [](const auto& info) { return v1::Compression::Codec_Name(info.param); });

TEST(ClientPullCodecTest, WeightsAreReadWithTheirScale) {
  for (const auto pull : {v1::Compression::BFLOAT16, v1::Compression::FLOAT16}) {
    const v1::Job job = JobWith(v1::Compression::FLOAT32, pull);
    TestServers servers(job, FlatLayout(kValues, kServers, kBlock));
    servers.SetRosters({MakeRoster(0, {0})});
    SteadyClock clock;
    ParameterClient client(OptionsOf(job, servers.addresses()), &servers.layout(), &clock);
    std::vector<float> gradient = Normals(1), weights(kValues);
    for (float& value : gradient) value *= 1e6f;  // beyond binary16's range
    ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    const float error = pull == v1::Compression::BFLOAT16 ? 1.0f / 256 : 1.0f / 2048;
    for (int64_t i = 0; i < kValues; ++i)
      ASSERT_NEAR(weights[i], -gradient[i], error * std::abs(gradient[i]));
    EXPECT_NE(weights, servers.Weights()) << "the center is not rounded";
    EXPECT_EQ(client.totals().bytes_pulled, 2 * kValues);
  }
}

}  // namespace
}  // namespace catchment
