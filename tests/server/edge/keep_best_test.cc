// The stream of best weights over a real socket: the weights that are saved, and the errors of broken
// streams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "common/net/rpc.h"
#include "common/wire/token.h"
#include "proto/master.grpc.pb.h"
#include "server/edge/keep_best_stream.h"
#include "server/edge/listener.h"
#include "server/host/best_keeper.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr uint64_t kEvaluator = 7, kEvaluation = 5;
constexpr int64_t kValues = 10;

constexpr char kTokenKey[] = "the key of a test";

// KeepBest alone.
class KeepBestService final : public CallService {
 public:
  explicit KeepBestService(BestKeeper* keeper) : keeper_(*keeper) {}
  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override {
    KeepBestCall::Accept(
        queue, Permission("catchment.v1.MasterService.KeepBest", &token_key_),
        [this](KeepBestCall* call, void* tag) {
          service_.RequestKeepBest(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
        },
        [this](KeepBestCall* call) { KeepBestStream::Start(call, &keeper_); });
  }

 private:
  const std::string token_key_ = kTokenKey;
  BestKeeper& keeper_;
  v1::MasterService::AsyncService service_;
};

class KeepBestTest : public testing::Test {
 protected:
  KeepBestTest() : keeper_(kValues, MakeOwner()), service_(&keeper_) {
    stub_ = v1::MasterService::NewStub(Connect(listener_.address(), grpc::InsecureChannelCredentials()));
  }

  // A call of the evaluator's, open until Finish.
  struct Call {
    std::unique_ptr<grpc::ClientContext> context = DeadlineContext(60);
    v1::KeepBestReply reply;
    std::unique_ptr<grpc::ClientWriter<v1::BestWeights>> writer;

    bool Send(const v1::BestWeights& message) { return writer->Write(message); }
    absl::Status Finish() {
      writer->WritesDone();
      return FromGrpc(writer->Finish());
    }
  };
  std::unique_ptr<Call> Open(uint64_t incarnation = kEvaluator) {
    auto call = std::make_unique<Call>();
    call->context->AddMetadata(kTokenMetadata, RegistrationToken(kTokenKey, incarnation));
    call->writer = stub_->KeepBest(call->context.get(), &call->reply);
    return call;
  }

  // Values begin, begin + 1, ...
  static v1::BestWeights Part(uint64_t begin, int count) {
    v1::BestWeights message;
    message.set_incarnation(kEvaluator);
    message.set_evaluation(kEvaluation);
    message.set_begin(begin);
    std::vector<float> values;
    for (int i = 0; i < count; ++i) values.push_back(static_cast<float>(begin + i));
    message.set_values(values.data(), values.size() * sizeof(float));
    return message;
  }

  absl::Status Send(const std::vector<v1::BestWeights>& messages) {
    const auto call = Open(messages.empty() ? kEvaluator : messages[0].incarnation());
    for (const v1::BestWeights& message : messages) {
      if (!call->Send(message)) break;
    }
    return call->Finish();
  }

  // Expects that the stream leaves nothing behind, and that the owner gets the error.
  void ExpectRefused(const std::vector<v1::BestWeights>& messages, absl::StatusCode code,
                     const std::string& words) {
    Forget();
    const absl::Status status = Send(messages);
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr(words));
    EXPECT_THAT(ended(), ElementsAre(HasSubstr(words)));
    EXPECT_TRUE(written().empty());
  }

  // Returns the weights that the owner received; they are complete when the client has its answer.
  std::vector<float> written() {
    MutexLock lock(&mu_);
    return written_;
  }
  std::vector<std::string> ended() {
    MutexLock lock(&mu_);
    return ended_;
  }
  void Forget() {
    MutexLock lock(&mu_);
    written_.clear();
    ended_.clear();
  }
  void FailWritesWith(const absl::Status& status) {
    MutexLock lock(&mu_);
    write_status_ = status;
  }
  std::atomic<int> admitted_ = 0;

 private:
  BestKeeper::Owner MakeOwner() {
    BestKeeper::Owner owner;
    owner.admit = [this](uint64_t incarnation, uint64_t evaluation) -> absl::StatusOr<v1::BestState> {
      if (incarnation != kEvaluator) return absl::NotFoundError("who?");
      if (evaluation != kEvaluation) return absl::FailedPreconditionError("not the best");
      v1::BestState score;
      score.set_evaluation(evaluation);
      ++admitted_;
      return score;
    };
    owner.write = [this](const v1::BestState& score, absl::Span<const float> weights) {
      EXPECT_EQ(score.evaluation(), kEvaluation);
      MutexLock lock(&mu_);
      if (write_status_.ok()) written_.assign(weights.begin(), weights.end());
      return write_status_;
    };
    owner.ended = [this](const v1::BestState& score, const absl::Status& status) {
      EXPECT_EQ(score.evaluation(), kEvaluation);
      MutexLock lock(&mu_);
      ended_.push_back(status.ToString());
    };
    return owner;
  }

  Mutex mu_;
  std::vector<float> written_ ABSL_GUARDED_BY(mu_);
  std::vector<std::string> ended_ ABSL_GUARDED_BY(mu_);
  absl::Status write_status_ ABSL_GUARDED_BY(mu_);

 protected:
  BestKeeper keeper_;
  KeepBestService service_;
  Listener listener_ = *Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&service_}, {});
  std::unique_ptr<v1::MasterService::Stub> stub_;
};

TEST_F(KeepBestTest, KeepsWhatComesWholeInAnySizeOfMessage) {
  EXPECT_TRUE(Send({Part(0, 4), Part(4, 1), Part(5, 5)}).ok());
  EXPECT_THAT(written(), ElementsAre(0, 1, 2, 3, 4, 5, 6, 7, 8, 9));
  EXPECT_THAT(ended(), ElementsAre("OK"));
  Forget();
  EXPECT_TRUE(Send({Part(0, kValues)}).ok()) << "one after the other";
  EXPECT_EQ(written().size(), 10u);
}

TEST_F(KeepBestTest, ValuesOutOfOrderAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectRefused({Part(1, 9)}, code, "from value 1, expected value 0 next");
  ExpectRefused({Part(0, 4), Part(5, 5)}, code, "from value 5, expected value 4 next");
  ExpectRefused({Part(0, 4), Part(0, 4)}, code, "from value 0, expected value 4 next");
}

TEST_F(KeepBestTest, MessagesOfWrongSizesAreRefused) {
  const auto code = absl::StatusCode::kInvalidArgument;
  ExpectRefused({Part(0, 11)}, code, "44 bytes of the best weights, expected at most 10 values of 4 bytes");
  ExpectRefused({Part(0, 10), Part(10, 1)}, code, "4 bytes of the best weights, expected at most 0 values");
  ExpectRefused({Part(0, 5), Part(5, 0)}, code, "0 bytes of the best weights, expected at most 5 values");
  v1::BestWeights torn = Part(0, 2);
  torn.mutable_values()->pop_back();
  ExpectRefused({torn}, code, "7 bytes");
}

TEST_F(KeepBestTest, AnEvaluationOrEvaluatorThatChangesOnTheWayIsRefused) {
  v1::BestWeights other = Part(5, 5);
  other.set_evaluation(6);
  ExpectRefused({Part(0, 5), other}, absl::StatusCode::kInvalidArgument,
                "of evaluation 6 in the stream of evaluation 5");
  other = Part(5, 5);
  other.set_incarnation(8);
  ExpectRefused({Part(0, 5), other}, absl::StatusCode::kInvalidArgument, "received weights of evaluation 5");
}

TEST_F(KeepBestTest, WhatEndsTooEarlyIsNotKept) {
  ExpectRefused({Part(0, 9)}, absl::StatusCode::kDataLoss, "ended after 9 of 10 values");
}

TEST_F(KeepBestTest, WhatNobodyWantsIsRefusedAtOnce) {
  v1::BestWeights message = Part(0, 10);
  message.set_evaluation(4);
  EXPECT_EQ(Send({message}).code(), absl::StatusCode::kFailedPrecondition);
  message = Part(0, 10);
  message.set_incarnation(8);
  EXPECT_EQ(Send({message}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Send({}).message(), "received no weights");
  EXPECT_TRUE(written().empty());
  EXPECT_TRUE(ended().empty());
}

TEST_F(KeepBestTest, WeightsWithTheTokenOfAnotherRegistrationAreRefused) {
  const auto call = Open(kEvaluator + 1);
  call->Send(Part(0, 10));
  const absl::Status status = call->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("does not come from the registration"));
  EXPECT_TRUE(written().empty());
}

TEST_F(KeepBestTest, FullDiskIsReportedToTheSender) {
  FailWritesWith(absl::ResourceExhaustedError("no space left on device"));
  ExpectRefused({Part(0, 10)}, absl::StatusCode::kResourceExhausted, "no space left on device");
  FailWritesWith(absl::OkStatus());
  EXPECT_TRUE(Send({Part(0, 10)}).ok()) << "and the next may be kept";
}

TEST_F(KeepBestTest, ASenderThatHangsGivesWayToAnother) {
  const auto hangs = Open();
  ASSERT_TRUE(hangs->Send(Part(0, 5)));
  while (admitted_ == 0) std::this_thread::yield();
  ASSERT_TRUE(Send({Part(0, 10)}).ok());
  EXPECT_EQ(written().size(), 10u);
  hangs->Send(Part(5, 5));
  const absl::Status status = hangs->Finish();
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  EXPECT_THAT(ended(), ElementsAre("OK")) << "of the other one";
}

// A refused first message does not end a stream under way.
TEST_F(KeepBestTest, RefusedStreamDoesNotDisturbAnother) {
  const absl::StatusOr<uint64_t> stream = keeper_.Begin(Part(0, 5));
  ASSERT_TRUE(stream.ok()) << stream.status();
  v1::BestWeights stranger = Part(0, 10);
  stranger.set_incarnation(8);
  EXPECT_EQ(Send({stranger}).code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Send({Part(1, 1)}).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(keeper_.Add(*stream, Part(5, 5)).ok());
  std::promise<absl::Status> ended;
  keeper_.End(*stream, [&ended](const absl::Status& status) { ended.set_value(status); });
  const absl::Status status = ended.get_future().get();
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(KeepBestTest, OfTwoStreamsTheNewerCounts) {
  const uint64_t first = *keeper_.Begin(Part(0, 5));
  const uint64_t second = *keeper_.Begin(Part(0, 5));
  EXPECT_EQ(keeper_.Add(first, Part(5, 5)).code(), absl::StatusCode::kAborted);
  absl::Status first_status;
  keeper_.End(first, [&](const absl::Status& status) { first_status = status; });
  EXPECT_EQ(first_status.code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(keeper_.Add(second, Part(5, 5)).ok());
  EXPECT_TRUE(ended().empty()) << "the second one is under way";
}

}  // namespace
}  // namespace catchment
