#include "worker/loop/heartbeat.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <future>
#include <string>

#include "common/base/clock.h"
#include "tests/common/net/scripted_master.h"

namespace catchment {
namespace {

constexpr double kLeaseSeconds = 6;

TEST(HeartbeatTest, CallThatIsLostLeavesTimeForOthersInTheLease) {
  const ScriptedMaster master;
  const SteadyClock clock;
  const StopFlag stop;
  MasterClient client(master.address(), grpc::InsecureChannelCredentials(), 600, &clock, &stop);
  Heartbeat heartbeat(v1::HeartbeatRequest(), kLeaseSeconds, 600, &client, &clock,
                      {[] { return v1::Progress(); }, [](const std::string&) {}, [](const absl::Status&) {}});
  master.heartbeat.Await(1);
  // gRPC rounds what it sends of a deadline up.
  EXPECT_LE(master.heartbeat.arrivals()[0].seconds_left, kLeaseSeconds / 3 + 0.1);
}

TEST(HeartbeatTest, AMasterThatStaysAwayIsNamedWithTheTime) {
  const SteadyClock clock;
  const StopFlag stop;
  MasterClient client("127.0.0.1:1", grpc::InsecureChannelCredentials(), 600, &clock, &stop);
  std::promise<absl::Status> lost;
  Heartbeat heartbeat(v1::HeartbeatRequest(), /*heartbeat_timeout_seconds=*/0.1, /*give_up_seconds=*/0.25,
                      &client, &clock,
                      {[] { return v1::Progress(); }, [](const std::string&) {},
                       [&lost](const absl::Status& status) { lost.set_value(status); }});
  EXPECT_THAT(std::string(lost.get_future().get().message()),
              testing::StartsWith("gave up after 0.25 s: master at 127.0.0.1:1: "));
}

}  // namespace
}  // namespace catchment
