#include "worker/loop/heartbeat.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <chrono>
#include <future>
#include <string>

#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/net/loopback_server.h"

namespace catchment {
namespace {

constexpr double kLeaseSeconds = 6;

// Notes how long it has to answer the first heartbeat.
class FakeMaster final : public v1::MasterService::Service {
 public:
  grpc::Status Heartbeat(grpc::ServerContext* context, const v1::HeartbeatRequest*,
                         v1::HeartbeatReply*) override {
    const std::chrono::duration<double> left = context->deadline() - std::chrono::system_clock::now();
    MutexLock lock(&mu_);
    seconds_ = left.count();
    heard_ = true;
    changed_.Notify();
    return grpc::Status::OK;
  }
  double AwaitSeconds() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return heard_; });
    return seconds_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool heard_ ABSL_GUARDED_BY(mu_) = false;
  double seconds_ ABSL_GUARDED_BY(mu_) = 0;
};

TEST(HeartbeatTest, CallThatIsLostLeavesTimeForOthersInTheLease) {
  FakeMaster master;
  const LoopbackServer server(&master);
  const SteadyClock clock;
  const StopFlag stop;
  MasterClient client(server.address(), grpc::InsecureChannelCredentials(), 600, &clock, &stop);
  Heartbeat heartbeat(v1::HeartbeatRequest(), kLeaseSeconds, 600, &client, &clock,
                      {[] { return v1::Progress(); }, [](const std::string&) {}, [](const absl::Status&) {}});
  // gRPC rounds what it sends of a deadline up.
  EXPECT_LE(master.AwaitSeconds(), kLeaseSeconds / 3 + 0.1);
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
