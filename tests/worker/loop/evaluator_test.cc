#include "worker/loop/evaluator.h"

#include <grpcpp/grpcpp.h>

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/net/scripted_master.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using enum absl::StatusCode;

// Another evaluator has index 0, as one that was killed a moment ago.
constexpr uint32_t kIndex = 1;

// A master that never asks for an evaluation.
class EvaluatorTest : public testing::Test {
 protected:
  EvaluatorTest() {
    master_.register_member.EditReply([](v1::RegisterReply* reply) {
      reply->set_heartbeat_timeout_seconds(0.1);
      reply->set_worker(kIndex);
    });
    master_.heartbeat.SetHandler([this](const v1::HeartbeatRequest& request, auto*) {
      EXPECT_EQ(request.role(), v1::EVALUATOR);
      EXPECT_EQ(request.worker(), kIndex);
      EXPECT_EQ(request.incarnation(), master_.register_member.requests().size());
      return absl::OkStatus();
    });
    master_.leave.SetHandler([](const v1::LeaveRequest& request, auto*) {
      EXPECT_EQ(request.role(), v1::EVALUATOR);
      EXPECT_EQ(request.worker(), kIndex);
      return absl::OkStatus();
    });
  }

  // Runs an evaluator whose calls of GetEvaluation get `refusals` in turn. The job ends when there are no
  // more and the evaluator has sent a heartbeat. NOT_FOUND also begins another run, or with `ends` the master
  // says from then on that the job has ended.
  absl::Status Run(const std::vector<absl::StatusCode>& refusals, bool ends = false,
                   double connect_timeout_seconds = 60) {
    master_.get_evaluation.SetHandler(
        [this, refusals, ends, next = size_t{0}](const auto&, v1::GetEvaluationReply* reply) mutable {
          if (next == refusals.size()) {
            reply->set_stop(!master_.heartbeat.requests().empty());
            return absl::OkStatus();
          }
          const absl::StatusCode refusal = refusals[next++];
          if (refusal == kNotFound) GoBack(ends);
          return absl::Status(refusal, "refused");
        });
    const SteadyClock clock;
    Evaluator evaluator({.master = master_.address(),
                         .credentials = grpc::InsecureChannelCredentials(),
                         .connect_timeout_seconds = connect_timeout_seconds,
                         .role = v1::EVALUATOR},
                        &clock);
    return evaluator.Run();
  }
  void GoBack(bool ends) {
    master_.get_job.EditReply([ends](v1::GetJobReply* reply) {
      reply->set_run_id(reply->run_id() + 1);
      if (ends) (*reply = {}).set_ended("the job is DONE");
    });
  }
  // Returns the run of each registration.
  std::vector<uint64_t> runs() const {
    std::vector<uint64_t> runs;
    for (const v1::RegisterRequest& request : master_.register_member.requests())
      runs.push_back(request.run_id());
    return runs;
  }

  ScriptedMaster master_{SmallestJob()};
};

// A master that goes back cancels the calls in progress, and does not answer until its new run begins.
TEST_F(EvaluatorTest, SurvivesThatTheJobGoesBack) {
  const absl::Status status = Run({kCancelled, kUnavailable, kNotFound, kCancelled, kNotFound});
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(runs(), ElementsAre(1, 2, 3));
}

TEST_F(EvaluatorTest, LogsWhyItRegistersAgain) {
  FLAGS_logtostderr = true;
  testing::internal::CaptureStderr();
  const absl::Status status = Run({kAborted, kNotFound});
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(log, HasSubstr(": refused; registering again"));
  EXPECT_THAT(log,
              HasSubstr("the master was restarted, or the job went back to a checkpoint; registering again"));
}

TEST_F(EvaluatorTest, MasterThatEndsInOrderIsNotAFailure) {
  const absl::Status status =
      Run(std::vector(1000, kCancelled), /*ends=*/false, /*connect_timeout_seconds=*/0.1);
  EXPECT_TRUE(status.ok()) << status;
}

TEST_F(EvaluatorTest, JobThatHasEndedWhenItsMasterReturnsIsNotAFailure) {
  const absl::Status status = Run({kUnavailable, kNotFound}, /*ends=*/true);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(runs(), ElementsAre(1));
}

TEST_F(EvaluatorTest, MasterThatIsLostIsAFailure) {
  EXPECT_TRUE(absl::IsUnavailable(
      Run(std::vector(1000, kUnavailable), /*ends=*/false, /*connect_timeout_seconds=*/0.1)));
}

}  // namespace
}  // namespace catchment
