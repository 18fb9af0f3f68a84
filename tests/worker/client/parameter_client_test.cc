#include "worker/client/parameter_client.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/base/random.h"
#include "tests/common/base/settable_clock.h"
#include "tests/common/net/resetting_server.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/edge/train_peer.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/client/relay.h"

namespace catchment {
namespace {

using testing::Each;
using testing::HasSubstr;
using testing::StartsWith;

constexpr int64_t kValues = 1000;

// With `shared_memory`, payloads do not cross the connections.
ParameterClient::Options OptionsOf(const std::vector<std::string>& addresses, uint32_t worker = 0,
                                   bool shared_memory = true) {
  ParameterClient::Options options;
  options.shared_memory = shared_memory;
  options.servers = addresses;
  options.credentials = grpc::InsecureChannelCredentials();
  options.job = "test";
  options.worker = worker;
  options.incarnation = IncarnationOf(worker);
  options.run_id = kRunId;
  options.token = TestToken(options.incarnation);
  return options;
}

// Small whole numbers: sums are exact, so that one that is missing or counted twice shows.
std::vector<float> WholeNumbers(uint64_t seed) {
  Random random(seed);
  std::vector<float> values(kValues);
  for (float& value : values) value = static_cast<float>(random.Below(100));
  return values;
}

void Subtract(const std::vector<float>& gradient, std::vector<float>* weights) {
  for (size_t i = 0; i < weights->size(); ++i) (*weights)[i] -= gradient[i];
}

// ------------------------------------------------------------------------------------------------ the way

class ShardsTest : public testing::TestWithParam<int> {
 protected:
  void Serve(const v1::Job& job, const std::vector<uint32_t>& workers) {
    servers_ = std::make_unique<TestServers>(job, FlatLayout(kValues, GetParam(), 100));
    servers_->SetRosters({MakeRoster(0, workers)});
  }
  std::unique_ptr<ParameterClient> Client(uint32_t worker = 0) {
    return std::make_unique<ParameterClient>(OptionsOf(servers_->addresses(), worker), &servers_->layout(),
                                             &clock_);
  }

  SteadyClock clock_;
  std::unique_ptr<TestServers> servers_;
};

TEST_P(ShardsTest, PushesAndPullsReachEveryBlock) {
  Serve(GradientJob(false), {0});
  const auto client = Client();
  std::vector<float> weights(kValues, 9.0f), expected(kValues, 0.0f);
  ASSERT_TRUE(client->Pull(0, absl::MakeSpan(weights)).ok());
  EXPECT_EQ(weights, expected);
  for (uint64_t i = 0; i < 4; ++i) {
    const std::vector<float> gradient = WholeNumbers(i);
    Subtract(gradient, &expected);
    const auto outcome = i % 2 == 0 ? client->Push(gradient, 8, NextStep())
                                    : client->PushPull(gradient, 8, absl::MakeSpan(weights), NextStep());
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_FALSE(outcome->late || outcome->non_finite);
    EXPECT_EQ(outcome->staleness, i % 2) << "a push alone does not fetch";
    if (i % 2 == 1) {
      EXPECT_EQ(weights, expected);
    }
  }
  ASSERT_TRUE(client->Pull(4, absl::MakeSpan(weights)).ok());
  EXPECT_EQ(weights, expected);
  EXPECT_EQ(servers_->Weights(), expected);
  EXPECT_EQ(client->totals().bytes_pushed, 4 * kValues * sizeof(float));
  EXPECT_EQ(client->totals().bytes_pulled, 4 * kValues * sizeof(float));
  for (int s = 0; s < GetParam(); ++s) EXPECT_EQ(servers_->shard(s).Report().samples(), 32u);
}

TEST_P(ShardsTest, ExchangeAnswersWithTheElasticDifference) {
  Serve(ElasticJob(false, 0.25f), {0});
  const auto client = Client();
  const std::vector<float> x = WholeNumbers(1);
  std::vector<float> difference(kValues), expected(kValues);
  for (int64_t i = 0; i < kValues; ++i) expected[i] = 0.25f * x[i];
  ASSERT_TRUE(client->Exchange(x, 1, absl::MakeSpan(difference), NextStep()).ok());
  EXPECT_EQ(difference, expected);
  EXPECT_EQ(servers_->Weights(), expected);
}

TEST_P(ShardsTest, SynchronousWorkersMeetInEveryRound) {
  constexpr int kRounds = 20;
  Serve(GradientJob(true), {0, 1, 2});
  std::vector<std::thread> threads;
  for (uint32_t worker : {0, 1, 2}) {
    threads.emplace_back([&, worker] {
      const auto client = Client(worker);
      std::vector<float> weights(kValues);
      ASSERT_TRUE(client->Pull(0, absl::MakeSpan(weights)).ok());
      for (int round = 0; round < kRounds; ++round) {
        // The mean of 0, 3 and 6, whoever comes first.
        const std::vector<float> gradient(kValues, 3.0f * worker);
        const auto outcome = client->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep());
        ASSERT_TRUE(outcome.ok()) << outcome.status();
        EXPECT_FALSE(outcome->late);
        EXPECT_EQ(outcome->staleness, 0u);
        EXPECT_THAT(weights, Each(testing::FloatNear(-3.0f * (round + 1), 1e-4f)));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (int s = 0; s < GetParam(); ++s)
    EXPECT_EQ(servers_->shard(s).version(), static_cast<uint64_t>(kRounds));
}

TEST_P(ShardsTest, WorkerIsCalledAtTheVersionThatItHolds) {
  // Two workers make an update, and a third one may still be in it.
  Serve(GradientJobWith("consistency { quorum { minimum: 2 longest_grace_seconds: 1 } } "
                        "contribution { pseudo_gradient { local_steps: 4 } }"),
        {0, 1, 2});
  const auto first = Client(0), second = Client(1), called = Client(2);
  const std::vector<float> gradient(kValues, 1.0f);
  std::vector<float> weights(kValues);
  for (const auto& client : {first.get(), second.get(), called.get()})
    ASSERT_TRUE(client->Pull(0, absl::MakeSpan(weights)).ok());
  EXPECT_FALSE(called->Called(0));

  std::vector<float> of_first(kValues);
  first->Start({Parameters::Operation::kPushPull, 0, 1, gradient, absl::MakeSpan(of_first), NextStep()});
  first->Ready({0, kValues});
  const auto await_call = [&](ParameterClient* client) {
    for (int i = 0; i < 1000 && !client->Called(0); ++i) usleep(10000);
    return client->Called(0);
  };
  EXPECT_TRUE(await_call(called.get()));
  EXPECT_TRUE(await_call(second.get()));
  ASSERT_TRUE(second->PushPull(gradient, 1, absl::MakeSpan(weights), 1).ok());
  const auto outcome = first->Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->late);
  EXPECT_FALSE(first->Called(0)) << "it began the update";
  EXPECT_FALSE(second->Called(0)) << "it holds the next version";
  EXPECT_EQ(weights[0], -1);

  EXPECT_TRUE(called->Called(0)) << "it does not know yet that the update was made without it";
  const auto late = called->PushPull(gradient, 1, absl::MakeSpan(weights), 1);
  ASSERT_TRUE(late.ok()) << late.status();
  EXPECT_TRUE(late->late);
  EXPECT_FALSE(called->Called(0));
  EXPECT_EQ(weights[0], -1);
}

TEST_P(ShardsTest, UpdateIsMadeWhenItsGraceHasPassed) {
  Serve(GradientJobWith("consistency { quorum { minimum: 1 grace: 0.5 longest_grace_seconds: 0.05 } } "
                        "contribution { pseudo_gradient { local_steps: 4 overlap_steps: 2 } }"),
        {0, 1});
  const auto client = Client();
  std::vector<float> weights(kValues);
  for (int update = 1; update <= 3; ++update) {
    const auto outcome =
        client->PushPull(std::vector<float>(kValues, 1.0f), 1, absl::MakeSpan(weights), update);
    ASSERT_TRUE(outcome.ok()) << outcome.status();
    EXPECT_FALSE(outcome->late);
    EXPECT_THAT(weights, Each(-1.0f * update));
  }
}

TEST_P(ShardsTest, ContributionThatIsNotFiniteIsReportedToTheWorker) {
  Serve(GradientJob(false), {0});
  const auto client = Client();
  std::vector<float> gradient(kValues, 1.0f), weights(kValues);
  gradient[kValues - 1] = std::nanf("");
  const auto outcome = client->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep());
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->non_finite);
  EXPECT_EQ(weights.back(), 0.0f);
  EXPECT_EQ(servers_->shard(GetParam() - 1).Report().workers(0).non_finite(), 1u);
  gradient.back() = 1;
  EXPECT_FALSE(client->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep())->non_finite);
}

TEST_P(ShardsTest, ExchangeThatIsNotFiniteLeavesTheDifferenceAsItWas) {
  Serve(ElasticJob(false, 0.5f), {0});
  const auto client = Client();
  const std::vector<float> x(kValues, INFINITY);
  std::vector<float> difference(kValues, 7.0f);
  const auto outcome = client->Exchange(x, 1, absl::MakeSpan(difference), NextStep());
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->non_finite);
  EXPECT_THAT(difference, Each(7.0f));
  EXPECT_THAT(servers_->Weights(), Each(0.0f));
}

TEST_P(ShardsTest, ContributionToAnUpdateThatWasMadeIsReportedAsLate) {
  Serve(GradientJob(true), {0, 1});
  const auto slow = Client(0);
  std::vector<float> weights(kValues);
  ASSERT_TRUE(slow->Pull(0, absl::MakeSpan(weights)).ok());
  servers_->SetRosters({MakeRoster(0, {1})});
  const std::vector<float> gradient(kValues, 2.0f);
  ASSERT_TRUE(Client(1)->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
  servers_->SetRosters({MakeRoster(0, {0, 1})});
  const auto outcome = slow->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep());
  ASSERT_TRUE(outcome.ok());
  EXPECT_TRUE(outcome->late);
  EXPECT_THAT(weights, Each(-2.0f)) << "the center as it is";
  EXPECT_THAT(servers_->Weights(), Each(-2.0f));
}

TEST_P(ShardsTest, WorkerThatIsNotAMemberEndsAtOnceWithTheReason) {
  Serve(GradientJob(false), {1});
  std::vector<float> weights(kValues);
  const absl::Status status = Client(0)->Pull(0, absl::MakeSpan(weights));
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted);
  EXPECT_THAT(std::string(status.message()), StartsWith("server "));
  EXPECT_THAT(
      std::string(status.message()),
      HasSubstr("worker 0, incarnation 10, is not, or no longer, a member of the job; register again"));
}

TEST_P(ShardsTest, CancelEndsTheWaitAtAGateAndAllLaterCalls) {
  Serve(GradientJob(true), {0, 1});
  const auto client = Client();
  std::vector<float> weights(kValues);
  ASSERT_TRUE(client->Pull(0, absl::MakeSpan(weights)).ok());
  std::thread cancelling([&] {
    const auto pushed = [&] {
      uint64_t bytes = 0;
      for (int s = 0; s < GetParam(); ++s) bytes += servers_->shard(s).Report().bytes_pushed();
      return bytes;
    };
    while (pushed() < kValues * sizeof(float)) std::this_thread::yield();
    client->Cancel();
  });
  const std::vector<float> gradient(kValues, 1.0f);
  const absl::Status status = client->PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).status();
  cancelling.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(std::string(status.message()), "the worker was asked to stop");
  EXPECT_EQ(client->Pull(0, absl::MakeSpan(weights)).code(), absl::StatusCode::kCancelled);
}

// A worker that has been asked to end gives up after this time of waiting in which no block moves.
TEST_P(ShardsTest, StalledSecondsCountFromTheLastBlockThatMovedWhileTheCallerWaits) {
  Serve(GradientJob(true), {0, 1});
  SettableClock clock;
  ParameterClient waiting(OptionsOf(servers_->addresses(), 0), &servers_->layout(), &clock);
  std::vector<float> weights(kValues);
  ASSERT_TRUE(waiting.Pull(0, absl::MakeSpan(weights)).ok());
  clock.Advance(100);
  EXPECT_EQ(waiting.stalled_seconds(), 0) << "it computes";
  const std::vector<float> gradient(kValues, 1.0f);
  absl::Status status = absl::UnknownError("it has not ended");
  std::thread thread([&] { status = waiting.PushPull(gradient, 1, absl::MakeSpan(weights), 1).status(); });
  const auto pushed = [&] {
    uint64_t bytes = 0;
    for (int s = 0; s < GetParam(); ++s) bytes += servers_->shard(s).Report().bytes_pushed();
    return bytes;
  };
  while (pushed() < kValues * sizeof(float)) std::this_thread::yield();
  clock.Advance(7);
  // The caller may not wait yet.
  while (waiting.stalled_seconds() < 7) {
    clock.Advance(1);
    std::this_thread::yield();
  }
  // The other member's push completes an update of one block, which is answered.
  Peer other(*servers_, 1);
  ASSERT_TRUE(other.Write(PushOf(1, 0, 100, 1)));
  while (waiting.stalled_seconds() > 0) std::this_thread::yield();
  clock.Advance(3);
  EXPECT_EQ(waiting.stalled_seconds(), 3);
  waiting.Cancel();
  thread.join();
  EXPECT_EQ(status.code(), absl::StatusCode::kCancelled);
  EXPECT_EQ(waiting.stalled_seconds(), 0);
}

INSTANTIATE_TEST_SUITE_P(Servers, ShardsTest, testing::Values(1, 3));

// ------------------------------------------------------------------------------------- broken connections

// Blocks of 200 bytes, ten on each of two servers; the first one's connection is cut at many places: in the
// call's headers, in a push's blocks, among the answers.
class CutTest : public testing::TestWithParam<int> {};

TEST_P(CutTest, PushIsResumedAndAppliedExactlyOnceWhereverItsConnectionBreaks) {
  const Relay::Direction direction = GetParam() == 0 ? Relay::kToServer : Relay::kToClient;
  TestServers servers(GradientJob(false), FlatLayout(kValues, 2, 50));
  servers.SetRosters({MakeRoster(0, {0})});
  Relay relay(servers.addresses()[0]);
  SteadyClock clock;
  ParameterClient client(OptionsOf({relay.address(), servers.addresses()[1]}, 0, false), &servers.layout(),
                         &clock);
  std::vector<float> weights(kValues), expected(kValues, 0.0f);
  ASSERT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
  int cuts = 0;
  uint64_t seed = 0;
  for (int64_t bytes : {1, 20, 150, 431, 700, 1100, 1500, 2000, 2150}) {
    relay.CutAfter(direction, bytes);
    for (int i = 0; i < 3; ++i) {
      const std::vector<float> gradient = WholeNumbers(++seed);
      Subtract(gradient, &expected);
      const auto outcome = client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep());
      ASSERT_TRUE(outcome.ok()) << outcome.status();
      ASSERT_EQ(weights, expected) << "cut after " << bytes;
    }
    cuts += !relay.armed();
    relay.Disarm();
  }
  EXPECT_EQ(servers.Weights(), expected);
  EXPECT_EQ(cuts, 9);
  const v1::WorkerStatistics statistics = servers.shard(0).Report().workers(0);
  EXPECT_EQ(statistics.applied(), seed);
  if (direction == Relay::kToClient) {
    EXPECT_GT(statistics.duplicate(), 0u) << "what was applied but not answered came again";
  }
}

TEST_P(CutTest, ExchangeMovesTheCenterOnceWhereverItsConnectionBreaks) {
  const Relay::Direction direction = GetParam() == 0 ? Relay::kToServer : Relay::kToClient;
  TestServers servers(ElasticJob(false, 0.5f), FlatLayout(kValues, 1, 100));
  servers.SetRosters({MakeRoster(0, {0})});
  Relay relay(servers.addresses()[0]);
  SteadyClock clock;
  ParameterClient client(OptionsOf({relay.address()}, 0, false), &servers.layout(), &clock);
  std::vector<float> difference(kValues);
  float center = 0;
  for (int64_t bytes : {700, 2000, 3000}) {
    relay.CutAfter(direction, bytes);
    const std::vector<float> x(kValues, 1024.0f);
    ASSERT_TRUE(client.Exchange(x, 1, absl::MakeSpan(difference), NextStep()).ok());
    EXPECT_FALSE(relay.armed());
    center += 0.5f * (1024 - center);
    EXPECT_EQ(servers.Weights(), std::vector<float>(kValues, center));
  }
}

INSTANTIATE_TEST_SUITE_P(Directions, CutTest, testing::Values(0, 1),
                         [](const auto& info) { return info.param == 0 ? "ToServer" : "ToClient"; });

TEST(ParameterClientTest, SynchronousRoundsGoOnBitForBitOverCutConnections) {
  const auto train = [](bool cut) {
    TestServers servers(GradientJob(true, 0.1f), FlatLayout(kValues, 1, 100));
    servers.SetRosters({MakeRoster(0, {0, 1})});
    Relay relay(servers.addresses()[0]);
    std::vector<std::thread> threads;
    for (uint32_t worker : {0, 1}) {
      threads.emplace_back([&, worker] {
        SteadyClock clock;
        ParameterClient client(
            OptionsOf({worker == 0 ? relay.address() : servers.addresses()[0]}, worker, false),
            &servers.layout(), &clock);
        std::vector<float> weights(kValues), gradient(kValues);
        ASSERT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
        for (int round = 0; round < 12; ++round) {
          Random random(Derive(round, worker));
          for (float& value : gradient) value = static_cast<float>(random.Normal());
          if (cut && worker == 0 && round % 3 == 1)
            relay.CutAfter(Relay::Direction(round / 3 % 2), 600 * round);
          const auto outcome = client.PushPull(gradient, 1 + worker, absl::MakeSpan(weights), NextStep());
          ASSERT_TRUE(outcome.ok()) << outcome.status();
          ASSERT_FALSE(outcome->late);
          if (cut && worker == 0 && round % 3 == 2) relay.Disarm();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    return servers.Weights();
  };
  EXPECT_EQ(train(true), train(false));
}

TEST(ParameterClientTest, WaitsForAServerThatComesBack) {
  TestServers servers(GradientJob(false), FlatLayout(kValues, 2, 100));
  servers.SetRosters({MakeRoster(0, {0})});
  SteadyClock clock;
  ParameterClient client(OptionsOf(servers.addresses()), &servers.layout(), &clock);
  const std::vector<float> gradient(kValues, 1.0f);
  ASSERT_TRUE(client.Push(gradient, 1, NextStep()).ok());
  servers.Stop(1);
  std::thread restarting([&] {
    // The other server has its part: the client is in the middle of the push.
    while (servers.shard(0).version() < 2) std::this_thread::yield();
    servers.Start(1);
  });
  EXPECT_TRUE(client.Push(gradient, 1, NextStep()).ok());
  restarting.join();
  EXPECT_EQ(servers.Weights(), std::vector<float>(kValues, -2.0f));
}

TEST(ParameterClientTest, GivesUpOnAServerThatIsGoneForTheStatedTimeAndNamesIt) {
  TestServers servers(GradientJob(false), FlatLayout(kValues, 2, 100));
  servers.SetRosters({MakeRoster(0, {0})});
  const SettableClock clock(25);
  ParameterClient client(OptionsOf(servers.addresses()), &servers.layout(), &clock);
  const std::vector<float> gradient(kValues, 1.0f);
  ASSERT_TRUE(client.Push(gradient, 1, NextStep()).ok());
  servers.Stop(1);
  const absl::Status status = client.Push(gradient, 1, NextStep()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              StartsWith("server 1 at " + servers.addresses()[1] + " was unreachable for 60 s: "));
}

TEST(ParameterClientTest, GivesUpOnAServerThatWasNeverThere) {
  const ParameterLayout layout = FlatLayout(kValues, 1, 100);
  const SettableClock clock(25);
  ParameterClient client(OptionsOf({"127.0.0.1:1"}), &layout, &clock);
  std::vector<float> weights(kValues);
  EXPECT_THAT(std::string(client.Pull(0, absl::MakeSpan(weights)).message()),
              StartsWith("server 0 at 127.0.0.1:1 was unreachable for 60 s: "));
}

// gRPC resets streams of members when strangers have used up a server's memory for messages.
TEST(ParameterClientTest, ServerThatResetsStreamsIsTriedAgain) {
  const ParameterLayout layout = FlatLayout(kValues, 1, 100);
  const ResettingServer server(/*code=*/11);
  const SettableClock clock(25);
  ParameterClient client(OptionsOf({server.address()}), &layout, &clock);
  std::vector<float> weights(kValues);
  EXPECT_THAT(
      std::string(client.Pull(0, absl::MakeSpan(weights)).message()),
      StartsWith("server 0 at " + server.address() + " was unreachable for 60 s: Received RST_STREAM"));
  EXPECT_GT(server.num_calls(), 1);
}

TEST(ParameterClientTest, CancelEndsTheWaitForAServerThatIsGone) {
  const ParameterLayout layout = FlatLayout(kValues, 1, 100);
  const SettableClock clock;
  ParameterClient client(OptionsOf({"127.0.0.1:1"}), &layout, &clock);
  std::thread cancelling([&client] { client.Cancel(); });
  std::vector<float> weights(kValues);
  EXPECT_EQ(client.Pull(0, absl::MakeSpan(weights)).code(), absl::StatusCode::kCancelled);
  cancelling.join();
}

TEST(ParameterClientTest, ServerOfAnotherJobIsRefusedAtOnce) {
  TestServers servers(GradientJob(false), FlatLayout(kValues, 1, 100));
  servers.SetRosters({MakeRoster(0, {0})});
  SteadyClock clock;
  ParameterClient::Options options = OptionsOf(servers.addresses());
  options.job = "other";
  ParameterClient client(options, &servers.layout(), &clock);
  std::vector<float> weights(kValues);
  EXPECT_EQ(
      std::string(client.Pull(0, absl::MakeSpan(weights)).message()),
      "server 0 at " + servers.addresses()[0] + ": the worker belongs to job 'other', this server to 'test'");
}

TEST(ParameterClientTest, WorkersAtOnceAreAllAppliedOnce) {
  constexpr int kPushes = 50;
  TestServers servers(GradientJob(false), FlatLayout(kValues, 3, 70));
  servers.SetRosters({MakeRoster(0, {0, 1, 2})});
  std::vector<std::thread> threads;
  for (uint32_t worker : {0, 1, 2}) {
    threads.emplace_back([&, worker] {
      SteadyClock clock;
      ParameterClient client(OptionsOf(servers.addresses(), worker), &servers.layout(), &clock);
      std::vector<float> weights(kValues);
      const std::vector<float> gradient(kValues, 1.0f);
      ASSERT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
      for (int i = 0; i < kPushes; ++i)
        ASSERT_TRUE(client.PushPull(gradient, 1, absl::MakeSpan(weights), NextStep()).ok());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(servers.Weights(), std::vector<float>(kValues, -3.0f * kPushes));
  for (int s = 0; s < 3; ++s) EXPECT_EQ(servers.shard(s).version(), 3u * kPushes);
}

}  // namespace
}  // namespace catchment
