// ParameterClient with servers whose memory it reads, and which read its memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <memory_resource>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/time/clock.h"
#include "common/base/random.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/client/relay.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

constexpr int64_t kValues = 1000;

ParameterClient::Options OptionsOf(const std::vector<std::string>& addresses, bool shared,
                                   uint32_t worker = 0) {
  return {.servers = addresses,
          .credentials = grpc::InsecureChannelCredentials(),
          .job = "test",
          .worker = worker,
          .incarnation = IncarnationOf(worker),
          .run_id = kRunId,
          .token = TestToken(IncarnationOf(worker)),
          .shared_memory = shared};
}

// Sets small whole numbers, whose sums are exact.
void SetGradient(uint64_t seed, std::pmr::vector<float>* gradient) {
  Random random(seed);
  for (float& value : *gradient) value = static_cast<float>(random.Below(100));
}

// Trains some rounds, and returns the weights after each. The first rounds may be over the connection.
std::vector<std::vector<float>> Train(const v1::Job& job, int servers, bool shared) {
  TestServers test_servers(job, FlatLayout(kValues, servers, 100));
  test_servers.SetRosters({MakeRoster(0, {0})});
  SteadyClock clock;
  ParameterClient client(OptionsOf(test_servers.addresses(), shared), &test_servers.layout(), &clock);
  std::pmr::vector<float> gradient(kValues, client.memory());
  std::vector<std::vector<float>> all;
  std::vector<float> weights(kValues);
  EXPECT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
  for (int i = 0; i < 20; ++i) {
    SetGradient(i, &gradient);
    EXPECT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    all.push_back(weights);
  }
  EXPECT_EQ(client.shared_memory_servers(), shared ? servers : 0);
  const auto totals = client.totals();
  EXPECT_EQ(totals.bytes_pushed, 20 * kValues * sizeof(float));
  EXPECT_EQ(totals.bytes_pulled, 21 * kValues * sizeof(float));
  return all;
}

TEST(SharedMemoryClientTest, TrainsWithTheSameBitsAsOverTheConnection) {
  for (const int servers : {1, 3}) {
    EXPECT_EQ(Train(GradientJob(false), servers, true), Train(GradientJob(false), servers, false));
    EXPECT_EQ(Train(GradientJob(true), servers, true), Train(GradientJob(true), servers, false));
  }
}

// The messages are in pipes. The stream whose end is theirs is cut at many moments of a push.
TEST(SharedMemoryClientTest, PushIsAppliedExactlyOnceWhenItsConnectionBreaks) {
  TestServers servers(GradientJob(false), FlatLayout(kValues, 1, 50));
  servers.SetRosters({MakeRoster(0, {0})});
  Relay relay(servers.addresses()[0]);
  SteadyClock clock;
  ParameterClient client(OptionsOf({relay.address()}, true), &servers.layout(), &clock);
  std::pmr::vector<float> gradient(kValues, client.memory());
  std::vector<float> weights(kValues), expected(kValues, 0.0f);
  ASSERT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
  uint64_t seed = 0;
  for (int microseconds = 0; microseconds < 400; microseconds += 10) {
    for (int i = 0; i < 3; ++i) {
      // The first push after a cut opens a stream, and agrees on the pipes; the last is cut.
      std::optional<std::thread> cutter;
      if (i == 2) {
        cutter.emplace([&relay, microseconds] {
          absl::SleepFor(absl::Microseconds(microseconds));
          relay.Cut();
        });
      }
      SetGradient(++seed, &gradient);
      for (int64_t j = 0; j < kValues; ++j) expected[j] -= gradient[j];
      const auto outcome = client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep());
      if (cutter) cutter->join();
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      ASSERT_EQ(weights, expected) << "cut after " << microseconds;
    }
  }
  EXPECT_EQ(servers.Weights(), expected);
  EXPECT_EQ(servers.shard(0).Report().workers(0).applied(), seed);
}

TEST(SharedMemoryClientTest, ContinuesWithAServerThatComesBackWithOtherMemory) {
  TestServers servers(GradientJob(false), FlatLayout(kValues, 2, 100));
  servers.SetRosters({MakeRoster(0, {0})});
  SteadyClock clock;
  ParameterClient client(OptionsOf(servers.addresses(), true), &servers.layout(), &clock);
  std::pmr::vector<float> gradient(kValues, 1.0f, client.memory());
  std::vector<float> weights(kValues);
  for (int i = 1; i <= 35; ++i) {
    if (i % 10 == 0) {
      servers.Stop(i / 10 % 2);
      servers.Start(i / 10 % 2);
    }
    ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    ASSERT_EQ(weights, std::vector<float>(kValues, -static_cast<float>(i)));
  }
  EXPECT_EQ(client.shared_memory_servers(), 2u);
}

// The server may read a push after the worker has given it up and changed the memory.
TEST(SharedMemoryClientTest, WhatIsGivenUpIsNotAppliedWithOtherValues) {
  for (int round = 0; round < 20; ++round) {
    TestServers servers(GradientJob(false), FlatLayout(kValues, 1, 50));
    servers.SetRosters({MakeRoster(0, {0})});
    SteadyClock clock;
    auto client =
        std::make_unique<ParameterClient>(OptionsOf(servers.addresses(), true), &servers.layout(), &clock);
    std::optional<std::pmr::vector<float>> gradient(std::in_place, kValues, 1.0f, client->memory());
    std::vector<float> weights(kValues);
    for (int i = 0; i < 3; ++i)
      ASSERT_TRUE(client->PushPull(*gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    client->Start({.kind = Parameters::Operation::kPushPull,
                   .samples = 1,
                   .input = *gradient,
                   .output = absl::MakeSpan(weights),
                   .steps = NextStep()});
    client->Ready({0, kValues});
    client->Cancel();
    ASSERT_FALSE(client->Finish().ok());
    std::fill(gradient->begin(), gradient->end(), 1000.0f);
    for (const float weight : servers.Weights()) ASSERT_TRUE(weight == -3 || weight == -4) << weight;
    gradient.reset();
    client.reset();
    for (const float weight : servers.Weights()) ASSERT_TRUE(weight == -3 || weight == -4) << weight;
  }
}

TEST(SharedMemoryClientTest, WorkersOfOneMachineAndOthersTrainTogether) {
  TestServers servers(GradientJob(true), FlatLayout(kValues, 2, 100));
  servers.SetRosters({MakeRoster(0, {0, 1, 2})});
  std::vector<std::thread> threads;
  for (uint32_t worker : {0, 1, 2}) {
    threads.emplace_back([&, worker] {
      SteadyClock clock;
      ParameterClient client(OptionsOf(servers.addresses(), worker != 1, worker), &servers.layout(), &clock);
      std::pmr::vector<float> gradient(kValues, static_cast<float>(3 * worker), client.memory());
      std::vector<float> weights(kValues);
      for (int i = 1; i <= 50; ++i) {
        ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
        ASSERT_EQ(weights, std::vector<float>(kValues, -3.0f * static_cast<float>(i)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace catchment
