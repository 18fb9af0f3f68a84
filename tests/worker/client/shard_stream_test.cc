// Tests which thread writes: the queue's after Wake, the caller's in Send.
#include "worker/client/shard_stream.h"

#include <gtest/gtest.h>

#include <thread>

#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

// Sends pulls of block 0, one each time that it is asked to.
class PullOwner final : public ShardStream::Owner {
 public:
  bool Next(BlockHeader* header, absl::string_view* payload) override {
    MutexLock lock(&mu_);
    if (!wanted_) return false;
    wanted_ = false;
    sender_ = std::this_thread::get_id();
    *header = {.operation = v1::Block::PULL};
    *payload = {};
    return true;
  }
  absl::Status OnAnswer(const BlockHeader&, const PayloadView&) override {
    MutexLock lock(&mu_);
    ++answers_;
    changed_.Notify();
    return absl::OkStatus();
  }
  void OnClosed(const absl::Status& status) override {
    MutexLock lock(&mu_);
    closed_ = status;
    changed_.Notify();
  }

  void Want() {
    MutexLock lock(&mu_);
    wanted_ = true;
  }
  // Returns the thread that sent the last pull, once `count` are answered.
  std::thread::id SenderOf(int count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return answers_ == count || !closed_.ok(); });
    EXPECT_EQ(closed_, absl::OkStatus());
    return sender_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  bool wanted_ ABSL_GUARDED_BY(mu_) = false;
  int answers_ ABSL_GUARDED_BY(mu_) = 0;
  std::thread::id sender_ ABSL_GUARDED_BY(mu_);
  absl::Status closed_ ABSL_GUARDED_BY(mu_);
};

class ShardStreamTest : public testing::Test {
 protected:
  ShardStreamTest()
      : servers_(GradientJob(false), *ParameterLayout::Create({{"w", {100}}}, 1, 100)),
        queue_(std::make_unique<grpc::CompletionQueue>(), "wire") {
    servers_.SetRosters({MakeRoster(0, {0})});
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_job("test");
    hello.set_fingerprint(servers_.layout().fingerprint());
    hello.set_num_shards(1);
    hello.set_incarnation(IncarnationOf(0));
    hello.set_run_id(kRunId);
    hello.set_token(TestToken(hello.incarnation()));
    stream_ =
        std::make_unique<ShardStream>(Connect(servers_.addresses()[0], grpc::InsecureChannelCredentials()),
                                      ConnectionThreads{queue_.queue(), &pipes_}, hello, &owner_);
  }

  TestServers servers_;
  PipeThread pipes_{"pipes"};
  CompletionThread queue_;
  PullOwner owner_;
  std::unique_ptr<ShardStream> stream_;
};

TEST_F(ShardStreamTest, WakeLeavesTheWritingToTheQueuesThread) {
  for (int pull = 1; pull <= 20; ++pull) {
    owner_.Want();
    stream_->Wake();
    EXPECT_NE(owner_.SenderOf(pull), std::this_thread::get_id());
  }
}

TEST_F(ShardStreamTest, SendWritesOnTheCallersThreadWhenNoWriteIsUnderWay) {
  // An answer may come before the write is known to be done; then the queue's thread sends the next one.
  std::thread::id sender;
  for (int pull = 1; sender != std::this_thread::get_id(); ++pull) {
    owner_.Want();
    stream_->Send();
    sender = owner_.SenderOf(pull);
  }
}

}  // namespace
}  // namespace catchment
