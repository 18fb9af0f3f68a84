#include "worker/loop/session.h"

#include <grpcpp/grpcpp.h>

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/wire/protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/net/scripted_master.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  SessionTest() : client_(master_.address(), grpc::InsecureChannelCredentials(), 60, &clock_, &stop_) {
    Edit([](v1::GetJobReply* reply) { reply->set_build("9.9.9"); });
  }
  void Edit(const std::function<void(v1::GetJobReply*)>& edit) { master_.get_job.EditReply(edit); }
  std::string Refusal() {
    const absl::Status status =
        OpenSession({.credentials = grpc::InsecureChannelCredentials()}, &client_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  ScriptedMaster master_{SmallestJob()};
  const SteadyClock clock_;
  const StopFlag stop_;
  MasterClient client_;
};

// However long it takes.
TEST_F(SessionTest, MasterThatIsReadingItsShardIsAwaited) {
  master_.get_job.SetHandler([calls = 0](const auto&, auto*) mutable {
    return ++calls <= 3 ? NotReady("this server is reading its shard") : absl::OkStatus();
  });
  MasterClient impatient(master_.address(), grpc::InsecureChannelCredentials(), /*give_up_seconds=*/0,
                         &clock_, &stop_);
  const auto reply = impatient.Call(&MasterClient::Stub::GetJob, v1::GetJobRequest());
  EXPECT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(master_.get_job.requests().size(), 4u);
}

TEST_F(SessionTest, MasterOfAnotherProtocolVersionIsRefused) {
  Edit([](v1::GetJobReply* reply) { reply->clear_protocol_version(); });
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(absl::StrCat("the master at ", master_.address(),
                                                      " speaks protocol version 1 or older "
                                                      "(Catchment 9.9.9), this worker ",
                                                      kProtocolVersion, " (Catchment ")),
                               HasSubstr("use binaries of one release")));
}

TEST_F(SessionTest, JobWithAFieldThatTheWorkerDoesNotKnowIsRefused) {
  Edit([](v1::GetJobReply* reply) {
    v1::Optimizer* const optimizer = reply->mutable_job()->mutable_optimizer();
    optimizer->GetReflection()->MutableUnknownFields(optimizer)->AddVarint(4321, 1);
  });
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("catchment.v1.Optimizer has a field with number 4321"),
                               HasSubstr("update the worker to the master's build (9.9.9)")));
}

TEST_F(SessionTest, JobThatHasEndedIsNotOpened) {
  Edit([](v1::GetJobReply* reply) { (*reply = {}).set_ended("the job is DONE after 10 updates"); });
  const WorkerOptions options{.credentials = grpc::InsecureChannelCredentials()};
  const absl::Status status = OpenSession(options, &client_).status();
  EXPECT_TRUE(HasMasterEnded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the job is DONE after 10 updates"));
}

// The trainer keeps in it what TOP_K has not sent.
TEST_F(SessionTest, ResidualIsKeptInARunAndDroppedWithIt) {
  const WorkerOptions options{.credentials = grpc::InsecureChannelCredentials()};
  absl::StatusOr<Session> session = OpenSession(options, &client_);
  ASSERT_TRUE(session.ok()) << session.status();
  session->residual = {0.5f, -1, 0, 0};
  ASSERT_TRUE(FollowMaster(options, absl::AbortedError("no"), &client_, &session).ok());
  EXPECT_EQ(session->residual, std::vector<float>({0.5f, -1, 0, 0}));
  Edit([](v1::GetJobReply* reply) { reply->set_run_id(2); });
  ASSERT_TRUE(FollowMaster(options, absl::AbortedError("no"), &client_, &session).ok());
  EXPECT_EQ(session->run_id, 2u);
  EXPECT_TRUE(session->residual.empty());
}

}  // namespace
}  // namespace catchment
