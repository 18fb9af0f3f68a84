// A block's way from the socket to the socket, through gRPC and the shard: nothing is allocated but what gRPC
// needs for any message of the size. The yardstick is a bare gRPC stream that answers slices with slices.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/net/grpc_frame.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "server/edge/listener.h"
#include "tests/common/allocation/allocation_counter.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/edge/train_peer.h"
#include "tests/server/shard/shard_harness.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = 1 << 12;
constexpr int kBlocks = 4;
constexpr int kWarmingPushes = 500, kPushes = 2000;
// Allocations per block: a fifth of one for each push. Threads of gRPC's that see their first block late
// allocate a little, the more the busier the machine is.
constexpr double kNearlyNone = 0.2 / kBlocks;

// Answers every message with a header and a vector, as a shard does, and does nothing else.
class BareStream final : public grpc::ServerGenericBidiReactor {
 public:
  BareStream() { StartRead(&incoming_); }

  void OnReadDone(bool ok) override {
    if (!ok) {
      Finish(grpc::Status::OK);
      return;
    }
    incoming_.Dump(&slices_);
    slices_.clear();
    incoming_.Clear();
    const BlockHeader header{v1::Block::PUSH_PULL, 1, 1, 0, 0, 0, v1::Block::APPLIED};
    grpc::ByteBuffer frame =
        Frame(header, grpc::Slice(
                          values_.data(), values_.size() * sizeof(float), [](void*) {}, values_.data()));
    outgoing_.Swap(&frame);
    StartWrite(&outgoing_);
  }
  void OnWriteDone(bool) override {
    outgoing_.Clear();
    StartRead(&incoming_);
  }
  void OnDone() override { delete this; }

 private:
  std::vector<float> values_ = std::vector<float>(kBlock);
  std::vector<grpc::Slice> slices_;
  grpc::ByteBuffer incoming_, outgoing_;
};

class BareService final : public grpc::CallbackGenericService {
  grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
    return new BareStream;
  }
};

// Sends a block, waits for its answer, sends the next.
class LockstepClient final : public grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  LockstepClient(const std::string& address, const v1::Hello& hello)
      : stub_(Connect(address, grpc::InsecureChannelCredentials())), gradient_(kBlock, 0.25f) {
    context_.AddMetadata(kHelloKey, hello.SerializeAsString());
    stub_.PrepareBidiStreamingCall(&context_, "/catchment.v1.ShardService/Train", grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  ~LockstepClient() override {
    context_.TryCancel();
    RemoveHold();
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return gone_; });
  }

  bool Push() {
    ++sequence_;
    for (uint32_t block = 0; block < kBlocks; ++block) {
      const BlockHeader header{.operation = v1::Block::PUSH_PULL,
                               .sequence = sequence_,
                               .version = sequence_ - 1,
                               .block = block,
                               .samples = 1,
                               .steps = sequence_};
      grpc::ByteBuffer frame =
          Frame(header, grpc::Slice(gradient_.data(), kBlock * sizeof(float), grpc::Slice::STATIC_SLICE));
      outgoing_.Swap(&frame);
      MutexLock lock(&mu_);
      answered_ = written_ = false;
      StartWrite(&outgoing_);
      changed_.Wait(&mu_, [this] { return gone_ || (answered_ && written_); });
      if (gone_) return false;
    }
    return true;
  }

 private:
  void OnWriteDone(bool ok) override {
    MutexLock lock(&mu_);
    written_ = ok;
    changed_.Notify();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    incoming_.Clear();
    StartRead(&incoming_);
    MutexLock lock(&mu_);
    answered_ = true;
    changed_.Notify();
  }
  void OnDone(const grpc::Status&) override {
    MutexLock lock(&mu_);
    gone_ = true;
    changed_.Notify();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  const std::vector<float> gradient_;
  grpc::ByteBuffer incoming_, outgoing_;
  uint64_t sequence_ = 0;
  Mutex mu_;
  CondVar changed_;
  bool answered_ ABSL_GUARDED_BY(mu_) = false;
  bool written_ ABSL_GUARDED_BY(mu_) = false;
  bool gone_ ABSL_GUARDED_BY(mu_) = false;
};

struct PerBlock {
  double all = 0;
  double ours = 0;
};

PerBlock Measure(const std::string& address, const v1::Hello& hello) {
  LockstepClient client(address, hello);
  for (int i = 0; i < kWarmingPushes; ++i) EXPECT_TRUE(client.Push());
  const Allocations before = CountAllocations();
  for (int i = 0; i < kPushes; ++i) EXPECT_TRUE(client.Push());
  const Allocations counted = CountAllocations() - before;
  constexpr double kCount = kPushes * kBlocks;
  return {static_cast<double>(counted.all) / kCount, static_cast<double>(counted.ours) / kCount};
}

TEST(TrainAllocationTest, NothingButWhatGrpcNeedsForAnyMessage) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  const ParameterLayout layout = FlatLayout(kBlocks * kBlock, 1, kBlock);
  BareService bare_service;
  grpc::ServerBuilder builder;
  SetTrainingOptions(&builder);
  int port = 0;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterCallbackGenericService(&bare_service);
  const std::unique_ptr<grpc::Server> bare_server = builder.BuildAndStart();
  const PerBlock bare = Measure("127.0.0.1:" + std::to_string(port), HelloOf(layout, 0));

  for (int threads : {0, 2}) {
    TestServers::Options options;
    options.service.apply.threads = threads;
    TestServers servers(GradientJob(false), layout, options);
    servers.SetRosters({MakeRoster(0, {0, 1, 2, 3, 4})});
    // On a busy machine there are tens of threads of gRPC's, but most have seen a block after some workers'
    // pushes.
    uint32_t workers = 0;
    PerBlock ours;
    do {
      ours = Measure(servers.addresses()[0], HelloOf(layout, workers++));
    } while (ours.ours >= kNearlyNone && workers < 5);
    EXPECT_LT(ours.ours, kNearlyNone) << "with " << threads << " threads";
    EXPECT_LT(bare.ours, kNearlyNone);
    // gRPC itself needs more where another thread sends than the one that received; and a little more or less
    // with how a message is cut in pieces on its way. One more for every block would be too much.
    if (threads == 0) {
      EXPECT_LT(ours.all, bare.all + 0.75);
    }
    RecordProperty("per_block_with_" + std::to_string(threads) + "_threads", std::to_string(ours.all));
    RecordProperty("per_block_of_grpc", std::to_string(bare.all));
    EXPECT_EQ(servers.shard(0).version(), uint64_t{workers} * (kWarmingPushes + kPushes));
  }
}

}  // namespace
}  // namespace catchment
