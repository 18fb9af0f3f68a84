#include "worker/loop/evaluator.h"

#include <grpcpp/grpcpp.h>

#include <string>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "common/wire/protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/net/loopback_server.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

// A master that never asks for an evaluation. It answers the calls of GetEvaluation with `answers` in turn,
// and ends the job when there are no more and the evaluator has sent a heartbeat. NOT_FOUND also begins
// another run, or with `ends` says from then on that the job has ended.
class FakeMaster final : public v1::MasterService::Service {
 public:
  explicit FakeMaster(std::vector<grpc::StatusCode> answers, bool ends = false)
      : answers_(std::move(answers)), ends_(ends) {}

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    MutexLock lock(&mu_);
    if (ends_ && run_id_ > 1) {
      reply->set_ended("the job is DONE");
      return grpc::Status::OK;
    }
    reply->set_protocol_version(kProtocolVersion);
    reply->add_servers("127.0.0.1:1");
    *reply->mutable_job() = SmallestJob();
    reply->set_run_id(run_id_);
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest* request,
                        v1::RegisterReply* reply) override {
    reply->set_heartbeat_timeout_seconds(0.1);
    reply->set_worker(kIndex);
    MutexLock lock(&mu_);
    runs_.push_back(request->run_id());
    reply->set_incarnation(runs_.size());
    return grpc::Status::OK;
  }
  grpc::Status GetEvaluation(grpc::ServerContext*, const v1::GetEvaluationRequest*,
                             v1::GetEvaluationReply* reply) override {
    MutexLock lock(&mu_);
    if (next_ == answers_.size()) {
      reply->set_stop(heartbeats_ > 0);
      return grpc::Status::OK;
    }
    const grpc::StatusCode answer = answers_[next_++];
    if (answer == grpc::NOT_FOUND) ++run_id_;
    return grpc::Status(answer, "refused");
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply*) override {
    EXPECT_EQ(request->role(), v1::EVALUATOR);
    EXPECT_EQ(request->worker(), kIndex);
    MutexLock lock(&mu_);
    EXPECT_EQ(request->incarnation(), runs_.size());
    ++heartbeats_;
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request, v1::LeaveReply*) override {
    EXPECT_EQ(request->role(), v1::EVALUATOR);
    EXPECT_EQ(request->worker(), kIndex);
    return grpc::Status::OK;
  }

  // Returns the run of each registration.
  std::vector<uint64_t> runs() {
    MutexLock lock(&mu_);
    return runs_;
  }
  std::string address() const { return server_.address(); }

 private:
  // Another evaluator has index 0, as one that was killed a moment ago.
  static constexpr uint32_t kIndex = 1;

  Mutex mu_;
  const std::vector<grpc::StatusCode> answers_;
  const bool ends_;
  size_t next_ ABSL_GUARDED_BY(mu_) = 0;
  int heartbeats_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t run_id_ ABSL_GUARDED_BY(mu_) = 1;
  std::vector<uint64_t> runs_ ABSL_GUARDED_BY(mu_);
  const LoopbackServer server_{this};
};

absl::Status RunEvaluator(const FakeMaster& master, double connect_timeout_seconds = 60) {
  const SteadyClock clock;
  Evaluator evaluator({.master = master.address(),
                       .credentials = grpc::InsecureChannelCredentials(),
                       .connect_timeout_seconds = connect_timeout_seconds,
                       .role = v1::EVALUATOR},
                      &clock);
  return evaluator.Run();
}

// A master that goes back cancels the calls in progress, and does not answer until its new run begins.
TEST(EvaluatorTest, SurvivesThatTheJobGoesBack) {
  FakeMaster master({grpc::CANCELLED, grpc::UNAVAILABLE, grpc::NOT_FOUND, grpc::CANCELLED, grpc::NOT_FOUND});
  const absl::Status status = RunEvaluator(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(master.runs(), ElementsAre(1, 2, 3));
}

TEST(EvaluatorTest, LogsWhyItRegistersAgain) {
  FLAGS_logtostderr = true;
  FakeMaster master({grpc::ABORTED, grpc::NOT_FOUND});
  testing::internal::CaptureStderr();
  const absl::Status status = RunEvaluator(master);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(log, HasSubstr(": refused; registering again"));
  EXPECT_THAT(log,
              HasSubstr("the master was restarted, or the job went back to a checkpoint; registering again"));
}

TEST(EvaluatorTest, MasterThatEndsInOrderIsNotAFailure) {
  FakeMaster master(std::vector<grpc::StatusCode>(1000, grpc::CANCELLED));
  const absl::Status status = RunEvaluator(master, /*connect_timeout_seconds=*/0.1);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(EvaluatorTest, JobThatHasEndedWhenItsMasterReturnsIsNotAFailure) {
  FakeMaster master({grpc::UNAVAILABLE, grpc::NOT_FOUND}, /*ends=*/true);
  const absl::Status status = RunEvaluator(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(master.runs(), ElementsAre(1));
}

TEST(EvaluatorTest, MasterThatIsLostIsAFailure) {
  FakeMaster master(std::vector<grpc::StatusCode>(1000, grpc::UNAVAILABLE));
  EXPECT_TRUE(absl::IsUnavailable(RunEvaluator(master, /*connect_timeout_seconds=*/0.1)));
}

}  // namespace
}  // namespace catchment
