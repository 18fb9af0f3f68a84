// Operations that go on under the caller's work: what leaves when, what is waited for, and where time went.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/common/base/settable_clock.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/client/relay.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

using testing::Each;

constexpr int64_t kValues = 1000;
constexpr int64_t kBlock = 100;
using Operation = Parameters::Operation;

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

void WaitUntil(const std::function<bool()>& condition) {
  while (!condition()) std::this_thread::yield();
}

// Takes connections and never says a word.
class Deaf {
 public:
  Deaf() : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in here = {};
    here.sin_family = AF_INET;
    here.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof(here);
    CHECK_EQ(bind(fd_, reinterpret_cast<const sockaddr*>(&here), size), 0);
    CHECK_EQ(listen(fd_, 16), 0);
    CHECK_EQ(getsockname(fd_, reinterpret_cast<sockaddr*>(&here), &size), 0);
    address_ = "127.0.0.1:" + std::to_string(ntohs(here.sin_port));
  }
  ~Deaf() { close(fd_); }
  const std::string& address() const { return address_; }

 private:
  const int fd_;
  std::string address_;
};

class OverlapTest : public testing::TestWithParam<int> {
 protected:
  void Serve(const v1::Job& job, const std::vector<uint32_t>& workers) {
    servers_ = std::make_unique<TestServers>(job, FlatLayout(kValues, GetParam(), kBlock));
    servers_->SetRosters({MakeRoster(0, workers)});
    client_ =
        std::make_unique<ParameterClient>(OptionsOf(servers_->addresses()), &servers_->layout(), &clock_);
  }
  void StartPushPull() {
    client_->Start({.kind = Operation::kPushPull,
                    .samples = 1,
                    .input = gradient_,
                    .output = absl::MakeSpan(weights_),
                    .steps = NextStep()});
  }
  uint64_t ValuesPushed() {
    uint64_t bytes = 0;
    for (int s = 0; s < GetParam(); ++s) bytes += servers_->shard(s).Report().bytes_pushed();
    return bytes / sizeof(float);
  }

  SettableClock clock_;
  std::vector<float> gradient_ = std::vector<float>(kValues, 1.0f);
  std::vector<float> weights_ = std::vector<float>(kValues, 9.0f);
  std::unique_ptr<TestServers> servers_;
  std::unique_ptr<ParameterClient> client_;
};

TEST_P(OverlapTest, PartsLeaveAndComeBackWhileOthersAreStillComputed) {
  Serve(GradientJob(false), {0});
  StartPushPull();
  const auto part = [](std::vector<float>& values, int64_t begin) {
    return absl::MakeSpan(values).subspan(begin, 100);
  };
  for (int64_t begin = kValues - 100; begin >= 0; begin -= 100) {
    std::fill_n(gradient_.begin() + begin, 100, static_cast<float>(begin));
    client_->Ready({begin, begin + 100});
    // The blocks of the last but one part end before this one, wherever shards begin.
    const int64_t back = begin + 200;
    if (back >= kValues) continue;
    ASSERT_TRUE(client_->Await({back, back + 100}).ok());
    EXPECT_THAT(part(weights_, back), Each(-static_cast<float>(back)));
  }
  ASSERT_TRUE(client_->Finish().ok());
  for (int64_t begin = 0; begin < kValues; begin += 100) {
    EXPECT_THAT(part(weights_, begin), Each(-static_cast<float>(begin)));
  }
  EXPECT_EQ(servers_->Weights(), weights_);
}

TEST_P(OverlapTest, NothingOfAPartThatIsNotReadyLeavesOrIsWritten) {
  Serve(GradientJob(false), {0});
  std::fill(gradient_.begin() + 500, gradient_.end(), std::nanf(""));
  StartPushPull();
  client_->Ready({0, 500});
  ASSERT_TRUE(client_->Await({0, 300}).ok());
  EXPECT_THAT(absl::MakeSpan(weights_).subspan(0, 300), Each(-1.0f));
  EXPECT_THAT(absl::MakeSpan(weights_).subspan(500), Each(9.0f));
  std::fill(gradient_.begin() + 500, gradient_.end(), 2.0f);
  client_->Ready({500, 1000});
  const auto outcome = client_->Finish();
  ASSERT_TRUE(outcome.ok()) << outcome.status();
  EXPECT_FALSE(outcome->non_finite);
  EXPECT_THAT(absl::MakeSpan(weights_).subspan(0, 500), Each(-1.0f));
  EXPECT_THAT(absl::MakeSpan(weights_).subspan(500), Each(-2.0f));
}

TEST_P(OverlapTest, AwaitOfAPushAloneWaitsForNothing) {
  Serve(GradientJob(true), {0, 1});  // worker 1 never comes
  ASSERT_TRUE(client_->Pull(0, absl::MakeSpan(weights_)).ok());
  client_->Start({.kind = Operation::kPush, .samples = 1, .input = gradient_, .steps = NextStep()});
  client_->Ready({0, kValues});
  EXPECT_TRUE(client_->Await({0, kValues}).ok());
  client_->Cancel();
  EXPECT_EQ(client_->Finish().status().code(), absl::StatusCode::kCancelled);
}

TEST_P(OverlapTest, OperationThatIsNotFinishedIsGivenUpWithTheClient) {
  Serve(GradientJob(true), {0, 1});
  StartPushPull();
  client_->Ready({300, 1000});
  client_.reset();
  // Worker 1 goes on when worker 0 is gone.
  servers_->SetRosters({MakeRoster(0, {1})});
  ParameterClient other(OptionsOf(servers_->addresses(), 1), &servers_->layout(), &clock_);
  EXPECT_TRUE(other.PushPull(gradient_, 1, absl::MakeSpan(weights_), NextStep()).ok());
}

// ------------------------------------------------------------------------------------------ where time went

// Microseconds and counts.
std::vector<std::pair<uint64_t, uint64_t>> RoundTrips(const ParameterClient& client) {
  std::vector<std::pair<uint64_t, uint64_t>> entries;
  client.totals().round_trips.ForEach([&](uint64_t us, uint64_t count) { entries.emplace_back(us, count); });
  return entries;
}

class GateTest : public OverlapTest {
 protected:
  // Worker 1 makes the first round complete, five seconds after the client has begun to wait with all values
  // at the servers.
  void FinishFiveSecondsLater() {
    clock_.WatchThisThread();
    std::thread other([this] {
      WaitUntil([this] { return clock_.readings() > 0 && ValuesPushed() == kValues; });
      clock_.Advance(5);
      std::vector<float> weights(kValues);
      ParameterClient client(OptionsOf(servers_->addresses(), 1), &servers_->layout(), &clock_);
      EXPECT_TRUE(client.PushPull(gradient_, 1, absl::MakeSpan(weights), NextStep()).ok());
    });
    EXPECT_TRUE(client_->Finish().ok());
    other.join();
  }
};

TEST_P(GateTest, WaitForTheOthersBeforeWeightsComeIsAWaitForThePull) {
  Serve(GradientJob(true), {0, 1});
  StartPushPull();
  client_->Ready({0, kValues});
  FinishFiveSecondsLater();
  EXPECT_EQ(client_->totals().push_seconds, 0);
  EXPECT_EQ(client_->totals().pull_seconds, 5);
  const auto trips = RoundTrips(*client_);
  ASSERT_EQ(trips.size(), 1u);
  EXPECT_EQ(trips[0].second, 1u);
  EXPECT_NEAR(static_cast<double>(trips[0].first), 5e6, 0.5e6);
}

TEST_P(GateTest, PushAloneIsAWaitForThePushUntilItIsAnswered) {
  Serve(GradientJob(true), {0, 1});
  client_->Start({.kind = Operation::kPush, .samples = 1, .input = gradient_, .steps = NextStep()});
  client_->Ready({0, kValues});
  FinishFiveSecondsLater();
  EXPECT_EQ(client_->totals().push_seconds, 5);
  EXPECT_EQ(client_->totals().pull_seconds, 0);
  EXPECT_TRUE(RoundTrips(*client_).empty());
}

INSTANTIATE_TEST_SUITE_P(Servers, GateTest, testing::Values(1, 3));
INSTANTIATE_TEST_SUITE_P(Servers, OverlapTest, testing::Values(1, 3));

TEST_P(OverlapTest, WhatComesWhileTheCallerIsBusyIsNotWaitedFor) {
  Serve(GradientJob(false), {0});
  StartPushPull();
  client_->Ready({0, 600});
  clock_.Advance(3);
  client_->Ready({600, kValues});
  WaitUntil([&] { return client_->totals().bytes_pulled == kValues * sizeof(float); });
  clock_.Advance(7);
  ASSERT_TRUE(client_->Await({0, kValues}).ok());
  ASSERT_TRUE(client_->Finish().ok());
  EXPECT_EQ(client_->totals().blocked_seconds(), 0);
  EXPECT_THAT(RoundTrips(*client_), testing::ElementsAre(testing::Pair(testing::Lt(10u), 1)))
      << "from the last part on";
}

TEST(OverlapOfTimeTest, WaitForBlocksThatDoNotLeaveIsAWaitForThePush) {
  const Deaf deaf;
  const ParameterLayout layout = FlatLayout(kValues, 1, kBlock);
  SettableClock clock;
  ParameterClient client(OptionsOf({deaf.address()}), &layout, &clock);
  std::vector<float> gradient(kValues), weights(kValues);
  client.Start({.kind = Operation::kPushPull,
                .samples = 1,
                .input = gradient,
                .output = absl::MakeSpan(weights),
                .steps = NextStep()});
  client.Ready({0, kValues});
  clock.WatchThisThread();
  std::thread other([&] {
    WaitUntil([&] { return clock.readings() > 0; });
    clock.Advance(5);
    client.Cancel();
  });
  EXPECT_EQ(client.Finish().status().code(), absl::StatusCode::kCancelled);
  other.join();
  EXPECT_EQ(client.totals().push_seconds, 5);
  EXPECT_EQ(client.totals().pull_seconds, 0);
}

// -------------------------------------------------------------------------------------- broken connections

TEST(OverlapOverCutConnectionsTest, PartsAreResumedAndAppliedExactlyOnce) {
  for (const Relay::Direction direction : {Relay::kToServer, Relay::kToClient}) {
    TestServers servers(GradientJob(false), FlatLayout(kValues, 2, 50));
    servers.SetRosters({MakeRoster(0, {0})});
    Relay relay(servers.addresses()[0]);
    SteadyClock clock;
    ParameterClient client(OptionsOf({relay.address(), servers.addresses()[1]}, 0, false), &servers.layout(),
                           &clock);
    std::vector<float> weights(kValues), gradient(kValues), expected(kValues, 0.0f);
    ASSERT_TRUE(client.Pull(0, absl::MakeSpan(weights)).ok());
    for (int64_t bytes : {1, 431, 1100, 2000}) {
      relay.CutAfter(direction, bytes);
      for (int push = 0; push < 3; ++push) {
        client.Start({.kind = Operation::kPushPull,
                      .samples = 1,
                      .input = gradient,
                      .output = absl::MakeSpan(weights),
                      .steps = NextStep()});
        for (int64_t begin = kValues - 125; begin >= 0; begin -= 125) {
          std::fill_n(gradient.begin() + begin, 125, static_cast<float>(begin + push + bytes));
          client.Ready({begin, begin + 125});
          if (begin == 500) {
            ASSERT_TRUE(client.Await({700, 900}).ok());
          }
        }
        for (int64_t i = 0; i < kValues; ++i) expected[i] -= gradient[i];
        for (int64_t begin = 0; begin < kValues; begin += 250) {
          ASSERT_TRUE(client.Await({begin, begin + 250}).ok());
          for (int64_t i = begin; i < begin + 250; ++i)
            ASSERT_EQ(weights[i], expected[i]) << "cut after " << bytes;
        }
        ASSERT_TRUE(client.Finish().ok());
      }
      EXPECT_FALSE(relay.armed());
      relay.Disarm();
    }
    EXPECT_EQ(servers.Weights(), expected);
  }
}

}  // namespace
}  // namespace catchment
