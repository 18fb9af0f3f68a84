#include "worker/loop/session.h"

#include <grpcpp/grpcpp.h>

#include <atomic>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/net/loopback_server.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::AllOf;
using testing::HasSubstr;

// A master that gives out the job that it was made with.
class FakeMaster final : public v1::MasterService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    if (waits_ > 0) {
      --waits_;
      return ToGrpc(NotReady("this server is reading its shard"));
    }
    *reply = reply_;
    return grpc::Status::OK;
  }
  v1::GetJobReply* reply() { return &reply_; }
  // The next calls are told to wait.
  void SetWaits(int calls) { waits_ = calls; }
  int waits() const { return waits_; }
  std::string address() const { return server_.address(); }

 private:
  v1::GetJobReply reply_;
  std::atomic<int> waits_ = 0;
  const LoopbackServer server_{this};
};

class SessionTest : public testing::Test {
 protected:
  SessionTest() : client_(master_.address(), grpc::InsecureChannelCredentials(), 60, &clock_, &stop_) {
    master_.reply()->set_protocol_version(kProtocolVersion);
    master_.reply()->set_build("9.9.9");
  }
  std::string Refusal() {
    const absl::Status status =
        OpenSession({.credentials = grpc::InsecureChannelCredentials()}, &client_).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  FakeMaster master_;
  const SteadyClock clock_;
  const StopFlag stop_;
  MasterClient client_;
};

// However long it takes.
TEST_F(SessionTest, MasterThatIsReadingItsShardIsAwaited) {
  master_.SetWaits(3);
  MasterClient impatient(master_.address(), grpc::InsecureChannelCredentials(), /*give_up_seconds=*/0,
                         &clock_, &stop_);
  const auto reply = impatient.Call(&MasterClient::Stub::GetJob, v1::GetJobRequest());
  EXPECT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(master_.waits(), 0);
}

TEST_F(SessionTest, MasterOfAnotherProtocolVersionIsRefused) {
  master_.reply()->clear_protocol_version();
  EXPECT_THAT(Refusal(), AllOf(HasSubstr(absl::StrCat("the master at ", master_.address(),
                                                      " speaks protocol version 1 or older "
                                                      "(Catchment 9.9.9), this worker ",
                                                      kProtocolVersion, " (Catchment ")),
                               HasSubstr("use binaries of one release")));
}

TEST_F(SessionTest, JobWithAFieldThatTheWorkerDoesNotKnowIsRefused) {
  v1::Optimizer* const optimizer = master_.reply()->mutable_job()->mutable_optimizer();
  optimizer->GetReflection()->MutableUnknownFields(optimizer)->AddVarint(4321, 1);
  EXPECT_THAT(Refusal(), AllOf(HasSubstr("catchment.v1.Optimizer has a field with number 4321"),
                               HasSubstr("update the worker to the master's build (9.9.9)")));
}

TEST_F(SessionTest, JobThatHasEndedIsNotOpened) {
  master_.reply()->Clear();
  master_.reply()->set_ended("the job is DONE after 10 updates");
  const WorkerOptions options{.credentials = grpc::InsecureChannelCredentials()};
  const absl::Status status = OpenSession(options, &client_).status();
  EXPECT_TRUE(HasMasterEnded(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr("the job is DONE after 10 updates"));
}

// The trainer keeps in it what TOP_K has not sent.
TEST_F(SessionTest, ResidualIsKeptInARunAndDroppedWithIt) {
  *master_.reply()->mutable_job() = SmallestJob();
  master_.reply()->add_servers("127.0.0.1:1");
  master_.reply()->set_run_id(1);
  const WorkerOptions options{.credentials = grpc::InsecureChannelCredentials()};
  absl::StatusOr<Session> session = OpenSession(options, &client_);
  ASSERT_TRUE(session.ok()) << session.status();
  session->residual = {0.5f, -1, 0, 0};
  ASSERT_TRUE(FollowMaster(options, absl::AbortedError("no"), &client_, &session).ok());
  EXPECT_EQ(session->residual, std::vector<float>({0.5f, -1, 0, 0}));
  master_.reply()->set_run_id(2);
  ASSERT_TRUE(FollowMaster(options, absl::AbortedError("no"), &client_, &session).ok());
  EXPECT_EQ(session->run_id, 2u);
  EXPECT_TRUE(session->residual.empty());
}

}  // namespace
}  // namespace catchment
