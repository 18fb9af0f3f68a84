#include "server/process/server_registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "server/edge/listener.h"
#include "tests/common/base/hasty_clock.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

// A master that notes who registers.
class FakeMaster final : public CallService {
 public:
  grpc::Service* grpc_service() override { return &service_; }
  void Accept(CallQueue* queue) override {
    DeferredCall<Async, v1::RegisterServerRequest, v1::RegisterServerReply>::Accept(
        queue, Permission("catchment.v1.MasterService.RegisterServer"),
        {&service_, &Async::RequestRegisterServer},
        [this](const v1::RegisterServerRequest& request, const auto& respond) {
          MutexLock lock(&mu_);
          v1::RegisterServerReply reply;
          reply.set_run_id(run_id_);
          reply.set_go_back(checkpoint_.has_value());
          reply.set_checkpoint(checkpoint_.value_or(0));
          reply.set_ended(ended_);
          requests_.push_back(request);
          changed_.Notify();
          if (!answer_.ok()) return respond(answer_);
          respond(reply);
        });
  }
  void AnswerWith(absl::Status answer) {
    MutexLock lock(&mu_);
    answer_ = std::move(answer);
  }
  void SetRunId(uint64_t run_id) {
    MutexLock lock(&mu_);
    run_id_ = run_id;
  }
  void EndAs(const std::string& how) {
    MutexLock lock(&mu_);
    ended_ = how;
  }
  void GoBackTo(uint64_t checkpoint) {
    MutexLock lock(&mu_);
    checkpoint_ = checkpoint;
  }
  v1::RegisterServerRequest WaitFor(bool leaving) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return !requests_.empty() && requests_.back().leaving() == leaving; });
    return requests_.back();
  }
  void WaitForAnother() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this, before = requests_.size()] { return requests_.size() > before; });
  }

 private:
  using Async = v1::MasterService::WithAsyncMethod_RegisterServer<v1::MasterService::Service>;

  Async service_;
  Mutex mu_;
  CondVar changed_;
  std::vector<v1::RegisterServerRequest> requests_ ABSL_GUARDED_BY(mu_);
  absl::Status answer_ ABSL_GUARDED_BY(mu_);
  uint64_t run_id_ ABSL_GUARDED_BY(mu_) = 5;
  std::optional<uint64_t> checkpoint_ ABSL_GUARDED_BY(mu_);
  std::string ended_ ABSL_GUARDED_BY(mu_);
};

// Takes what a link says when it fails.
class Failure {
 public:
  void Note(const absl::Status& status) {
    MutexLock lock(&mu_);
    EXPECT_TRUE(status_.ok()) << "once";
    status_ = status;
    changed_.Notify();
  }
  absl::Status Wait() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return !status_.ok(); });
    return status_;
  }

 private:
  Mutex mu_;
  CondVar changed_;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

class ServerRegistrationTest : public testing::Test {
 protected:
  ServerRegistrationTest()
      : listener_(*Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {&master_}, {})) {
    request_.set_index(3);
    request_.set_address("here:7000");
  }
  std::unique_ptr<ServerRegistration> Start(const std::string& master, const Clock* clock) {
    return std::make_unique<ServerRegistration>(
        master, grpc::InsecureChannelCredentials(), request_, &claim_, 60, clock,
        ServerRegistration::Callbacks{
            .version = [] { return 12; },
            .on_ended = [this](const std::string& how) { ended_.set_value(how); },
            .on_failed = [this](const absl::Status& status) { failure_.Note(status); },
            .on_begin_again =
                [this](const v1::RegisterServerReply& reply) { went_back_.set_value(reply.checkpoint()); }});
  }

  FakeMaster master_;
  const Listener listener_;
  v1::RegisterServerRequest request_;
  RunClaim claim_{/*server_instance=*/1};
  Failure failure_;
  std::promise<uint64_t> went_back_;
  std::promise<std::string> ended_;
};

TEST_F(ServerRegistrationTest, RegistersAndAnnouncesItsEnd) {
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  EXPECT_EQ(master_.WaitFor(false).index(), 3u);
  registration->Leave("");
  EXPECT_EQ(master_.WaitFor(true).address(), "here:7000");
}

TEST_F(ServerRegistrationTest, NamesTheRunThatTheServerBelongsTo) {
  v1::Run run;
  run.set_id(5);
  run.set_job("a");
  ASSERT_TRUE(claim_.Claim(run).ok());
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  EXPECT_EQ(master_.WaitFor(false).run().id(), 5u);
  // The master is started again: the server, which holds what the run before had trained, ends.
  master_.SetRunId(6);
  const absl::Status status = failure_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("this server belongs to run 0000000000000005 of job 'a'"));
}

TEST_F(ServerRegistrationTest, ServerThatIsAskedToBeginAgainIsGivenTheCheckpoint) {
  v1::Run run;
  run.set_id(5);
  ASSERT_TRUE(claim_.Claim(run).ok());
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  EXPECT_EQ(master_.WaitFor(false).version(), 12u);
  master_.SetRunId(6);
  master_.GoBackTo(7);
  EXPECT_EQ(went_back_.get_future().get(), 7u);
}

// Whatever run the server belongs to, and whether it asks for the first time or again.
TEST_F(ServerRegistrationTest, EndOfTheJobIsNotAFailure) {
  v1::Run run;
  run.set_id(4);
  ASSERT_TRUE(claim_.Claim(run).ok());
  master_.EndAs("the job is DONE");
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  EXPECT_EQ(ended_.get_future().get(), "the job is DONE");
}

TEST_F(ServerRegistrationTest, MasterLearnsWhyAServerEnds) {
  ServerRegistration::Report(listener_.address(), grpc::InsecureChannelCredentials(), request_,
                             absl::NotFoundError(absl::StrCat("no directory ", std::string(2000, 'x'))));
  const v1::RegisterServerRequest request = master_.WaitFor(false);
  EXPECT_EQ(request.index(), 3u);
  EXPECT_THAT(request.failure(), StartsWith("no directory xxx"));
  EXPECT_EQ(request.failure().size(), 1024u);
}

TEST_F(ServerRegistrationTest, MasterThatNamesNoRunIsOfAnotherRelease) {
  master_.SetRunId(0);
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  EXPECT_THAT(std::string(failure_.Wait().message()), HasSubstr("use binaries of the same release"));
}

TEST_F(ServerRegistrationTest, RefusalIsFinalAndSaysWhy) {
  master_.AnswerWith(absl::FailedPreconditionError("another job file"));
  const SteadyClock clock;
  const auto registration = Start(listener_.address(), &clock);
  const absl::Status status = failure_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()), "master at " + listener_.address() + ": another job file");
}

TEST_F(ServerRegistrationTest, ServerThatHasToEndWaitsAsLongAsTheMasterAnswersAndNotMuchLonger) {
  const HastyClock clock(50);
  const auto registration = Start(listener_.address(), &clock);
  registration->Leave("");
  for (int calls = 0; calls < 3; ++calls) master_.WaitForAnother();
  master_.AnswerWith(absl::UnavailableError("it has gone"));
  EXPECT_THAT(std::string(failure_.Wait().message()), StartsWith("gave up after 20 s: master at "));
}

TEST_F(ServerRegistrationTest, GivesUpOnAMasterThatIsNotThereAfterTheStatedTime) {
  const HastyClock clock(50);
  const auto registration = Start("127.0.0.1:1", &clock);
  const absl::Status status = failure_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("gave up after 60 s: master at 127.0.0.1:1: "));
}

}  // namespace
}  // namespace catchment
