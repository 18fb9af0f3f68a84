// The client makes no heap allocations for a block that gRPC alone would not make.
#include <grpcpp/generic/async_generic_service.h>
#include <grpcpp/generic/generic_stub.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/base/mutex.h"
#include "common/net/grpc_frame.h"
#include "common/net/rpc.h"
#include "tests/common/allocation/allocation_counter.h"
#include "worker/client/parameter_client.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = 1 << 14;  // values
constexpr int kBlocks = 32;
constexpr int64_t kValues = kBlock * kBlocks;
constexpr int kRounds = 100;

// Sends every message back as it is, which is also an answer.
class EchoStream final : public grpc::ServerGenericBidiReactor {
 public:
  EchoStream() { StartRead(&message_); }
  void OnReadDone(bool ok) override { ok ? StartWrite(&message_) : Finish(grpc::Status::OK); }
  void OnWriteDone(bool ok) override {
    if (ok) StartRead(&message_);
  }
  void OnDone() override { delete this; }

 private:
  grpc::ByteBuffer message_;
};

class EchoServer {
 public:
  EchoServer() {
    grpc::ServerBuilder builder;
    SetTrainingOptions(&builder);
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterCallbackGenericService(&service_);
    server_ = builder.BuildAndStart();
  }
  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  class Service final : public grpc::CallbackGenericService {
    grpc::ServerGenericBidiReactor* CreateReactor(grpc::GenericCallbackServerContext*) override {
      return new EchoStream;
    }
  };
  Service service_;
  int port_ = 0;
  std::unique_ptr<grpc::Server> server_;
};

// The least that a client can do: the same messages, one write at a time, answers looked into and copied.
class BareClient final : private grpc::ClientBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit BareClient(const std::string& address)
      : stub_(Connect(address, grpc::InsecureChannelCredentials())) {
    stub_.PrepareBidiStreamingCall(&context_, "/echo", grpc::StubOptions(), this);
    AddHold();
    StartRead(&incoming_);
    StartCall();
  }
  ~BareClient() override {
    context_.TryCancel();
    RemoveHold();
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return done_; });
  }

  void PushPull(const std::vector<float>& gradient, std::vector<float>* weights) {
    gradient_ = gradient.data();
    weights_ = weights->data();
    sent_ = 0;
    {
      MutexLock lock(&mu_);
      left_ = 2 * kBlocks;
    }
    Send();
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return left_ == 0; });
  }

 private:
  void Send() {
    const BlockHeader header{.operation = v1::Block::PUSH_PULL,
                             .sequence = ++sequence_,
                             .version = 1,
                             .block = static_cast<uint32_t>(sent_),
                             .samples = 8};
    outgoing_ = Frame(
        header, grpc::Slice(gradient_ + sent_ * kBlock, kBlock * sizeof(float), grpc::Slice::STATIC_SLICE));
    StartWrite(&outgoing_);
  }
  void OnWriteDone(bool ok) override {
    if (ok && ++sent_ < kBlocks) Send();
    CountDown();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    EXPECT_TRUE(frame_.Decode(incoming_).ok());
    frame_.payload().CopyTo(weights_ + frame_.header().block * kBlock);
    StartRead(&incoming_);
    CountDown();
  }
  void CountDown() {
    MutexLock lock(&mu_);
    if (--left_ == 0) changed_.Notify();
  }
  void OnDone(const grpc::Status&) override {
    MutexLock lock(&mu_);
    done_ = true;
    changed_.Notify();
  }

  grpc::GenericStub stub_;
  grpc::ClientContext context_;
  grpc::ByteBuffer incoming_, outgoing_;
  ReceivedFrame frame_;
  uint64_t sequence_ = 0;
  const float* gradient_ = nullptr;
  float* weights_ = nullptr;
  int sent_ = 0;
  Mutex mu_;
  CondVar changed_;
  int left_ ABSL_GUARDED_BY(mu_) = 0;  // writes and answers
  bool done_ ABSL_GUARDED_BY(mu_) = false;
};

// In kRounds runs, after as many that warm up.
Allocations InSteadyState(const std::function<void()>& run) {
  for (int i = 0; i < kRounds; ++i) run();
  const Allocations before = CountAllocations();
  for (int i = 0; i < kRounds; ++i) run();
  return CountAllocations() - before;
}

TEST(ClientAllocationTest, NoBlockAllocatesAnythingOfOurs) {
  if (!AllocationsAreCounted()) GTEST_SKIP() << "a sanitizer has its own malloc";
  const EchoServer server;
  const std::vector<float> gradient(kValues, 1.0f);
  std::vector<float> weights(kValues);

  BareClient bare(server.address());
  const Allocations by_grpc = InSteadyState([&] { bare.PushPull(gradient, &weights); });

  const ParameterLayout layout = *ParameterLayout::Create({{"w", {kValues}}}, 1, kBlock);
  const SteadyClock clock;
  ParameterClient client({{server.address()}, grpc::InsecureChannelCredentials(), "test", 0, 1}, &layout,
                         &clock);
  const Allocations by_client =
      InSteadyState([&] { ASSERT_TRUE(client.PushPull(gradient, 8, absl::MakeSpan(weights), 0).ok()); });
  const Allocations by_overlap = InSteadyState([&] {
    client.Start({.kind = Parameters::Operation::kPushPull,
                  .samples = 8,
                  .input = gradient,
                  .output = absl::MakeSpan(weights)});
    for (int64_t begin = kValues - kBlock / 2; begin >= 0; begin -= kBlock / 2)
      client.Ready({begin, begin + kBlock / 2});
    for (int64_t begin = 0; begin < kValues; begin += kBlock)
      ASSERT_TRUE(client.Await({begin, begin + kBlock}).ok());
    ASSERT_TRUE(client.Finish().ok());
  });

  ParameterClient::Options options{{server.address()}, grpc::InsecureChannelCredentials(), "test", 0, 1};
  options.compression.set_push(v1::Compression::FLOAT16);
  options.compression.set_pull(v1::Compression::FLOAT16);
  ParameterClient encoding(options, &layout, &clock);
  const Allocations by_encoding =
      InSteadyState([&] { ASSERT_TRUE(encoding.PushPull(gradient, 8, absl::MakeSpan(weights), 0).ok()); });

  EXPECT_EQ(by_grpc.ours, 0u) << "the measure itself";
  EXPECT_EQ(by_client.ours, 0u);
  EXPECT_EQ(by_overlap.ours, 0u);
  EXPECT_EQ(by_encoding.ours, 0u);
  // gRPC's allocations depend slightly on how a message is split on its way: about nine per block, on both
  // ends together. One more for every block would be too much.
  constexpr uint64_t kSlack = kRounds * kBlocks;
  EXPECT_LT(by_client.all, by_grpc.all + kSlack);
  EXPECT_LT(by_overlap.all, by_grpc.all + kSlack);
}

}  // namespace
}  // namespace catchment
