#include "server/process/server_registration.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <future>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "tests/common/base/settable_clock.h"
#include "tests/common/net/scripted_master.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

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
  ServerRegistrationTest() {
    Edit([](v1::RegisterServerReply* reply) { reply->set_run_id(5); });
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

  void Edit(const std::function<void(v1::RegisterServerReply*)>& edit) {
    master_.register_server.EditReply(edit);
  }
  v1::RegisterServerRequest WaitFor(bool leaving) const {
    const auto leaves = [leaving](const v1::RegisterServerRequest& last) {
      return last.leaving() == leaving;
    };
    return master_.register_server.AwaitLast(leaves);
  }

  ScriptedMaster master_;
  v1::RegisterServerRequest request_;
  RunClaim claim_{/*server_instance=*/1};
  Failure failure_;
  std::promise<uint64_t> went_back_;
  std::promise<std::string> ended_;
};

TEST_F(ServerRegistrationTest, RegistersAndAnnouncesItsEnd) {
  const SteadyClock clock;
  const auto registration = Start(master_.address(), &clock);
  EXPECT_EQ(WaitFor(false).index(), 3u);
  registration->Leave("");
  EXPECT_EQ(WaitFor(true).address(), "here:7000");
}

TEST_F(ServerRegistrationTest, NamesTheRunThatTheServerBelongsTo) {
  v1::Run run;
  run.set_id(5);
  run.set_job("a");
  ASSERT_TRUE(claim_.Claim(run).ok());
  const SteadyClock clock;
  const auto registration = Start(master_.address(), &clock);
  EXPECT_EQ(WaitFor(false).run().id(), 5u);
  // The master is started again: the server, which holds what the run before had trained, ends.
  Edit([](v1::RegisterServerReply* reply) { reply->set_run_id(6); });
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
  const auto registration = Start(master_.address(), &clock);
  EXPECT_EQ(WaitFor(false).version(), 12u);
  Edit([](v1::RegisterServerReply* reply) {
    reply->set_run_id(6);
    reply->set_go_back(true);
    reply->set_checkpoint(7);
  });
  EXPECT_EQ(went_back_.get_future().get(), 7u);
}

// Whatever run the server belongs to, and whether it asks for the first time or again.
TEST_F(ServerRegistrationTest, EndOfTheJobIsNotAFailure) {
  v1::Run run;
  run.set_id(4);
  ASSERT_TRUE(claim_.Claim(run).ok());
  Edit([](v1::RegisterServerReply* reply) { reply->set_ended("the job is DONE"); });
  const SteadyClock clock;
  const auto registration = Start(master_.address(), &clock);
  EXPECT_EQ(ended_.get_future().get(), "the job is DONE");
}

TEST_F(ServerRegistrationTest, MasterLearnsWhyAServerEnds) {
  ServerRegistration::Report(master_.address(), grpc::InsecureChannelCredentials(), request_,
                             absl::NotFoundError(absl::StrCat("no directory ", std::string(2000, 'x'))));
  const v1::RegisterServerRequest request = WaitFor(false);
  EXPECT_EQ(request.index(), 3u);
  EXPECT_THAT(request.failure(), StartsWith("no directory xxx"));
  EXPECT_EQ(request.failure().size(), 1024u);
}

TEST_F(ServerRegistrationTest, MasterThatNamesNoRunIsOfAnotherRelease) {
  Edit([](v1::RegisterServerReply* reply) { reply->set_run_id(0); });
  const SteadyClock clock;
  const auto registration = Start(master_.address(), &clock);
  EXPECT_THAT(std::string(failure_.Wait().message()), HasSubstr("use binaries of the same release"));
}

TEST_F(ServerRegistrationTest, RefusalIsFinalAndSaysWhy) {
  master_.register_server.Fail(absl::FailedPreconditionError("another job file"));
  const SteadyClock clock;
  const auto registration = Start(master_.address(), &clock);
  const absl::Status status = failure_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(std::string(status.message()), "master at " + master_.address() + ": another job file");
}

TEST_F(ServerRegistrationTest, ServerThatHasToEndWaitsAsLongAsTheMasterAnswersAndNotMuchLonger) {
  const SettableClock clock(50);
  const auto registration = Start(master_.address(), &clock);
  registration->Leave("");
  master_.register_server.Await(master_.register_server.requests().size() + 3);
  master_.register_server.Fail(absl::UnavailableError("it has gone"));
  EXPECT_THAT(std::string(failure_.Wait().message()), StartsWith("gave up after 20 s: master at "));
}

TEST_F(ServerRegistrationTest, GivesUpOnAMasterThatIsNotThereAfterTheStatedTime) {
  const SettableClock clock(50);
  const auto registration = Start("127.0.0.1:1", &clock);
  const absl::Status status = failure_.Wait();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), StartsWith("gave up after 60 s: master at 127.0.0.1:1: "));
}

}  // namespace
}  // namespace catchment
