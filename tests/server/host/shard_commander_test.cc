#include "server/host/shard_commander.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "common/net/rpc.h"
#include "server/edge/calls.h"
#include "server/edge/listener.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::UnorderedElementsAre;

constexpr double kPatience = 600;

// A server that answers commands with their generation, or, when it hangs, not before it ends.
class Server final : public CallService {
 public:
  explicit Server(bool hangs, uint64_t version = 0) : hangs_(hangs), version_(version) {
    listener_ = std::make_unique<Listener>(
        *Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {this}, {}));
    stub_ = v1::ShardService::NewStub(Connect(listener_->address(), grpc::InsecureChannelCredentials()));
  }
  ~Server() override {
    {
      MutexLock lock(&mu_);
      for (const Respond& respond : hanging_) respond(absl::UnavailableError("the server ends"));
    }
    listener_->Shutdown(0);
  }

  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override {
    Call::Accept(queue, Permission("catchment.v1.ShardService.Control"), {&service_, &Async::RequestControl},
                 [this](const v1::ShardCommand& command, Respond respond) {
                   v1::ShardReport report;
                   report.set_generation(command.generation());
                   report.set_version(version_);
                   if (!hangs_) return respond(report);
                   MutexLock lock(&mu_);
                   hanging_.push_back(std::move(respond));
                   changed_.Notify();
                 });
  }

  v1::ShardService::Stub* stub() { return stub_.get(); }
  void AwaitCall() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return !hanging_.empty(); });
  }

 private:
  using Async = v1::ShardService::AsyncService;
  using Call = DeferredCall<Async, v1::ShardCommand, v1::ShardReport>;
  using Respond = Call::Respond;

  const bool hangs_;
  const uint64_t version_;
  Async service_;
  Mutex mu_;
  CondVar changed_;
  std::vector<Respond> hanging_ ABSL_GUARDED_BY(mu_);
  std::unique_ptr<v1::ShardService::Stub> stub_;
  std::unique_ptr<Listener> listener_;
};

// The answers in their order: "GENERATION: what came".
class Answers {
 public:
  ShardCommander::OnAnswer Note() {
    return [this](const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer) {
      const std::string what = answer.ok() ? "report of " + std::to_string(answer->generation())
                                           : absl::StatusCodeToString(answer.status().code());
      MutexLock lock(&mu_);
      all_.push_back(std::to_string(command.generation()) + ": " + what);
      changed_.Notify();
    };
  }
  std::vector<std::string> Await(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this, count] { return all_.size() >= count; });
    return all_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<std::string> all_;
};

v1::ShardCommand Generation(uint64_t generation) {
  v1::ShardCommand command;
  command.set_generation(generation);
  return command;
}

TEST(ShardCommanderTest, AServerThatHangsDelaysNoOther) {
  Server hangs(true), answers(false);
  Answers heard;
  {
    ShardCommander commander;
    commander.Send(hangs.stub(), Generation(1), kPatience, heard.Note());
    hangs.AwaitCall();
    commander.Send(answers.stub(), Generation(2), kPatience, heard.Note());
    commander.Send(answers.stub(), Generation(3), kPatience, heard.Note());
    EXPECT_THAT(heard.Await(2), UnorderedElementsAre("2: report of 2", "3: report of 3"));
  }
  EXPECT_THAT(heard.Await(3), testing::Contains("1: CANCELLED")) << "it is broken off at the end";
}

TEST(ShardCommanderTest, CommandsAreSentAfterAllEarlierOnesAreAnswered) {
  Server server(false);
  Answers heard;
  ShardCommander commander;
  for (uint64_t generation = 1; generation <= 3; ++generation) {
    commander.Send(server.stub(), Generation(generation), kPatience, heard.Note());
    heard.Await(generation);
  }
  EXPECT_THAT(heard.Await(3), ElementsAre("1: report of 1", "2: report of 2", "3: report of 3"));
}

TEST(ShardCommanderTest, AServerThatHangsIsGivenUpAfterAWhile) {
  Server hangs(true);
  Answers heard;
  ShardCommander commander;
  commander.Send(hangs.stub(), Generation(1), /*seconds=*/0.2, heard.Note());
  EXPECT_THAT(heard.Await(1), ElementsAre("1: DEADLINE_EXCEEDED"));
}

TEST(ShardCommanderTest, AReportOutOfBoundsIsAnError) {
  Server server(false, /*version=*/UINT64_MAX);
  Answers heard;
  ShardCommander commander;
  commander.Send(server.stub(), Generation(1), kPatience, heard.Note());
  EXPECT_THAT(heard.Await(1), ElementsAre("1: INVALID_ARGUMENT"));
}

TEST(ShardCommanderTest, AServerThatIsGoneIsUnavailable) {
  const auto stub = v1::ShardService::NewStub(Connect("127.0.0.1:1", grpc::InsecureChannelCredentials()));
  Answers heard;
  ShardCommander commander;
  commander.Send(stub.get(), Generation(1), kPatience, heard.Note());
  EXPECT_THAT(heard.Await(1), ElementsAre("1: UNAVAILABLE"));
}

}  // namespace
}  // namespace catchment
