#include "worker/loop/trainer.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/model_shapes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/common/net/scripted_master.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;
using testing::Pair;

absl::Status RunTrainer(const ScriptedMaster& master, double connect_timeout_seconds = 60) {
  const SteadyClock clock;
  Trainer trainer({.master = master.address(),
                   .credentials = grpc::InsecureChannelCredentials(),
                   .connect_timeout_seconds = connect_timeout_seconds},
                  &clock);
  return trainer.Run();
}

TEST(TrainerTest, WorkerThatDoesNotFitTheJobEnds) {
  ScriptedMaster master(SmallestJob());
  master.get_lease.Fail(absl::FailedPreconditionError("no"));
  EXPECT_EQ(RunTrainer(master).code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(master.register_member.requests().size(), 1u);
}

TEST(TrainerTest, RefusedWorkerRegistersAgainAfterGrowingPauses) {
  ScriptedMaster master(SmallestJob());
  master.get_lease.Fail(absl::AbortedError("no"));
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  absl::Status status = absl::UnknownError("it has not ended");
  std::thread thread([&] { status = trainer.Run(); });
  master.register_member.Await(5);
  trainer.Stop();
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  const auto arrivals = master.register_member.arrivals();
  for (int i = 0; i < 4; ++i)
    EXPECT_GE(arrivals[i + 1].at - arrivals[i].at, 0.1 * (1 << i)) << "after registration " << i;
}

// gRPC cancels the calls that are in progress when the master's process ends. It does not return.
TEST(TrainerTest, WorkerThatRegistersWhileTheJobEndsHasNotFailed) {
  ScriptedMaster master(SmallestJob());
  master.register_member.Fail(absl::CancelledError());
  const absl::Status status = RunTrainer(master, /*connect_timeout_seconds=*/0.1);
  EXPECT_TRUE(status.ok()) << status;
}

// Begins another run of the job while the worker of the first run waits for a lease: the call is cancelled,
// and the next one is of a registration that the new run does not know.
void GoBackAtFirstLease(ScriptedMaster* master) {
  master->register_member.SetHandler([](const v1::RegisterRequest& request, v1::RegisterReply* reply) {
    reply->set_incarnation(request.run_id());
    return absl::OkStatus();
  });
  master->get_lease.SetHandler([master, calls = 0](const v1::GetLeaseRequest& request, auto*) mutable {
    if (++calls == 1) {
      master->get_job.EditReply([](v1::GetJobReply* reply) { reply->set_run_id(2); });
      return absl::CancelledError();
    }
    return request.incarnation() == 1 ? absl::NotFoundError("its token is missing") : absl::OkStatus();
  });
}

TEST(TrainerTest, WorkerOfAMasterThatGoesBackLogsThatAndNotHowItsRegistrationWasRefused) {
  FLAGS_logtostderr = true;
  ScriptedMaster master(SmallestJob());
  GoBackAtFirstLease(&master);
  testing::internal::CaptureStderr();
  const absl::Status status = RunTrainer(master);
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(log,
              HasSubstr("the master was restarted, or the job went back to a checkpoint; registering again"));
  EXPECT_THAT(log, Not(HasSubstr("its token is missing")));
}

TEST(TrainerTest, WorkerWhoseCallIsCancelledByAMasterThatGoesBackRegistersAgain) {
  ScriptedMaster master(SmallestJob());
  GoBackAtFirstLease(&master);
  const absl::Status status = RunTrainer(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.leave.Await(1).back().incarnation(), 2u);
}

TEST(TrainerTest, WorkerThatLearnsThatTheJobHasEndedHasNotFailed) {
  ScriptedMaster master;
  master.get_job.EditReply([](v1::GetJobReply* reply) { (*reply = {}).set_ended("the job is DONE"); });
  const absl::Status status = RunTrainer(master);
  EXPECT_TRUE(status.ok()) << status;
}

constexpr int kParameters = 64, kSent = 16;

v1::Job TopKJob() {
  v1::Job job = SmallestJob();
  job.set_name("test");
  job.mutable_algorithm()->mutable_consistency()->mutable_asynchronous();
  job.mutable_model()->mutable_synthetic()->set_parameters(kParameters);
  job.mutable_compression()->set_push(v1::Compression::TOP_K);
  job.mutable_compression()->set_top_k_fraction(static_cast<float>(kSent) / kParameters);
  return job;
}

ParameterLayout LayoutOfJob(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  const absl::StatusOr<std::vector<LayerShape>> layers = InferShapes(job.model(), data.input, data.target);
  CHECK(layers.ok()) << layers.status();
  return *LayoutOf(job, ListTensors(*layers), /*num_servers=*/1);
}

// The master grants each membership of worker 0 one step, and then ends the membership, of the second one
// because the job is done. With a residual of zero the second push would send the same values as the first
// one.
TEST(TrainerTest, WorkerThatRegistersAgainKeepsWhatTopKHasNotSent) {
  const v1::Job job = TopKJob();
  TestServers servers(job, LayoutOfJob(job));
  ScriptedMaster master(job, servers.addresses()[0]);
  master.get_job.EditReply([](v1::GetJobReply* reply) { reply->set_run_id(kRunId); });
  master.register_member.SetHandler(
      [&servers, memberships = uint64_t{0}](const auto&, v1::RegisterReply* reply) mutable {
        reply->set_incarnation(++memberships);
        reply->set_token(TestToken(memberships));
        servers.SetRosters({RosterOfLives(0, {{0, memberships}})});
        return absl::OkStatus();
      });
  master.get_lease.SetHandler([](const v1::GetLeaseRequest& request, v1::Lease* lease) {
    if (request.after() == 0) {
      *lease = {};
      lease->set_number(1);
      lease->add_minibatches()->add_spans()->set_end(4);
    } else if (request.progress().lease_steps() < 1) {
      lease->set_state(v1::Lease::WAIT);
      lease->set_retry_seconds(10);
    } else if (request.incarnation() == 1) {
      return absl::NotFoundError("the membership has expired");
    }
    return absl::OkStatus();
  });
  const absl::Status status = RunTrainer(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.register_member.requests().size(), 2u);
  const std::vector<float> weights = servers.Weights();
  const int64_t moved = kParameters - std::count(weights.begin(), weights.end(), 0.0f);
  EXPECT_GT(moved, kSent);
}

struct Stays {
  bool stops_first = false;    // ends the first registration by a heartbeat, instead of by its lease
  bool cancels_first = false;  // cancels the first call of the first registration
  int stays = 2;
};

// Assigns no samples, and asks workers that leave to stay: the first registration until the job has gone
// back, the second one until it has left `stays` times.
void AskToStay(Stays options, ScriptedMaster* master) {
  master->heartbeat.SetHandler([options](const v1::HeartbeatRequest& request, v1::HeartbeatReply* reply) {
    reply->set_stop(options.stops_first && request.incarnation() == 1);
    return absl::OkStatus();
  });
  master->get_lease.SetHandler([options](const v1::GetLeaseRequest& request, v1::Lease* lease) {
    if (options.stops_first && request.incarnation() == 1) lease->set_state(v1::Lease::WAIT);
    lease->set_retry_seconds(0.01);
    return absl::OkStatus();
  });
  master->leave.SetHandler([options, leaves = std::map<uint64_t, int>()](const v1::LeaveRequest& request,
                                                                         v1::LeaveReply* reply) mutable {
    const bool first = request.incarnation() == 1;
    const int times = ++leaves[request.incarnation()];
    if (options.cancels_first && first && times == 1) return absl::CancelledError();
    if (times > options.stays) return first ? absl::NotFoundError("of another run") : absl::OkStatus();
    reply->set_again_in_seconds(0.01);
    return absl::OkStatus();
  });
}

class StayingTest : public testing::TestWithParam<bool> {};

TEST_P(StayingTest, WorkerThatIsDoneRegistersAgainWhenTheJobGoesBack) {
  ScriptedMaster master(SmallestJob());
  AskToStay({.stops_first = GetParam()}, &master);
  const absl::Status status = RunTrainer(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.register_member.requests().size(), 2u);
  std::map<uint64_t, int> leaves;
  for (const v1::LeaveRequest& request : master.leave.requests()) {
    ++leaves[request.incarnation()];
    EXPECT_TRUE(request.stays() && !request.failed()) << request.DebugString();
  }
  EXPECT_THAT(leaves, ElementsAre(Pair(1, 3), Pair(2, 3)));
}

INSTANTIATE_TEST_SUITE_P(EndedBy, StayingTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Master" : "Lease"; });

TEST(TrainerTest, WorkerThatIsDoneRegistersAgainWhenItsFirstCallWasCancelled) {
  ScriptedMaster master(SmallestJob());
  AskToStay({.stops_first = true, .cancels_first = true}, &master);
  const absl::Status status = RunTrainer(master);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.register_member.requests().size(), 2u);
}

TEST(TrainerTest, StopEndsAWorkerThatStays) {
  ScriptedMaster master(SmallestJob());
  AskToStay({.stays = 1000000}, &master);
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  absl::Status status = absl::UnknownError("it has not ended");
  std::thread thread([&] { status = trainer.Run(); });
  master.leave.Await(2);
  trainer.Stop();
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.register_member.requests().size(), 1u);
  EXPECT_FALSE(master.leave.requests().back().stays());
}

}  // namespace
}  // namespace catchment
