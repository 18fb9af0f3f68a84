#include "common/net/stall_guard.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "common/job/parameter_layout.h"
#include "common/net/snapshot_reader.h"
#include "proto/wire.grpc.pb.h"
#include "tests/common/base/settable_clock.h"
#include "tests/common/net/loopback_server.h"

namespace catchment {
namespace {

using testing::HasSubstr;

constexpr int64_t kValues = 40;

// A server that sends the first block of its shard, and then nothing until the reader has gone.
class StallingServer final : public v1::ShardService::Service {
 public:
  grpc::Status Snapshot(grpc::ServerContext* context, const v1::SnapshotRequest*,
                        grpc::ServerWriter<v1::Block>* writer) override {
    has_deadline_ = context->deadline() != std::chrono::system_clock::time_point::max();
    v1::Block block;
    block.set_payload(std::string(kValues / 2 * sizeof(float), '\0'));
    writer->Write(block);
    while (!context->IsCancelled()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return grpc::Status::CANCELLED;
  }
  std::string address() const { return server_.address(); }
  bool has_deadline() const { return has_deadline_; }

 private:
  std::atomic<bool> has_deadline_ = false;
  const LoopbackServer server_{this};
};

TEST(StallGuardTest, ReaderGivesUpOnAServerThatStopsSendingAndHasNoOtherDeadline) {
  StallingServer server;
  const ParameterLayout layout = *ParameterLayout::Create({{"weights", {kValues}}}, 1, kValues / 2);
  SnapshotReader reader({server.address()}, grpc::InsecureChannelCredentials(), 1, &layout,
                        /*stall_seconds=*/0.2);
  std::vector<float> weights(kValues);
  const absl::Status status = reader.Read(absl::MakeSpan(weights));
  EXPECT_EQ(status.code(), absl::StatusCode::kDeadlineExceeded) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("snapshot of server 0 at " + server.address()));
  EXPECT_THAT(std::string(status.message()), HasSubstr("no progress for 0.2"));
  EXPECT_FALSE(server.has_deadline()) << "a slow network may take any time";
}

TEST(StallGuardTest, CallThatGoesOnMayTakeAnyTime) {
  SettableClock clock;
  grpc::ClientContext context;
  StallGuard guard(&context, 0.5, &clock);
  const absl::Status canceled = absl::CancelledError("snapshot");
  for (int i = 0; i < 10; ++i) {
    guard.Progress();
    clock.Advance(50);
    std::this_thread::sleep_for(std::chrono::milliseconds(150));  // the guard looks at the clock
  }
  EXPECT_EQ(guard.Explain(canceled), canceled);
  while (guard.Explain(canceled) == canceled) {
    clock.Advance(0.1);
    std::this_thread::yield();
  }
  EXPECT_EQ(guard.Explain(canceled).code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_TRUE(guard.Explain(absl::OkStatus()).ok()) << "it ended before it was canceled";
}

}  // namespace
}  // namespace catchment
