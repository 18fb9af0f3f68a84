#include "worker/loop/trainer.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "common/base/mutex.h"
#include "common/job/data_sources.h"
#include "common/job/job_layout.h"
#include "common/job/model_shapes.h"
#include "common/wire/protocol.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/net/loopback_server.h"
#include "tests/server/edge/test_servers.h"
#include "tests/server/shard/shard_harness.h"
#include "tests/worker/jobs.h"

namespace catchment {
namespace {

using testing::HasSubstr;
using testing::Not;

v1::GetJobReply ReplyWith(const v1::Job& job, uint64_t run_id, const std::string& server) {
  v1::GetJobReply reply;
  reply.set_protocol_version(kProtocolVersion);
  reply.set_run_id(run_id);
  reply.add_servers(server);
  *reply.mutable_job() = job;
  return reply;
}

// A master that takes every worker, and refuses it a lease.
class RefusingMaster final : public v1::MasterService::Service {
 public:
  explicit RefusingMaster(grpc::StatusCode refusal) : refusal_(refusal) {}

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    *reply = ReplyWith(SmallestJob(), /*run_id=*/1, "127.0.0.1:1");
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterReply* reply) override {
    MutexLock lock(&mu_);
    registered_at_.push_back(SteadyClock().Now());
    reply->set_incarnation(registered_at_.size());
    reply->set_heartbeat_timeout_seconds(10);
    changed_.Notify();
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest*, v1::Lease*) override {
    return grpc::Status(refusal_, "no");
  }

  // When workers registered; waits for `count` registrations.
  std::vector<double> AwaitRegistrations(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return registered_at_.size() >= count; });
    return registered_at_;
  }
  std::string address() const { return server_.address(); }

 private:
  Mutex mu_;
  CondVar changed_;
  std::vector<double> registered_at_ ABSL_GUARDED_BY(mu_);
  const grpc::StatusCode refusal_;
  const LoopbackServer server_{this};
};

TEST(TrainerTest, WorkerThatDoesNotFitTheJobEnds) {
  RefusingMaster master(grpc::FAILED_PRECONDITION);
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  EXPECT_EQ(trainer.Run().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_EQ(master.AwaitRegistrations(1).size(), 1u);
}

TEST(TrainerTest, RefusedWorkerRegistersAgainAfterGrowingPauses) {
  RefusingMaster master(grpc::ABORTED);
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  absl::Status status = absl::UnknownError("it has not ended");
  std::thread thread([&] { status = trainer.Run(); });
  const std::vector<double> at = master.AwaitRegistrations(5);
  trainer.Stop();
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  for (int i = 0; i < 4; ++i) EXPECT_GE(at[i + 1] - at[i], 0.1 * (1 << i)) << "after registration " << i;
}

// A master whose process ends while a worker registers: gRPC cancels the calls that are in progress. It does
// not return.
class EndingMaster final : public v1::MasterService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    *reply = ReplyWith(SmallestJob(), /*run_id=*/1, "127.0.0.1:1");
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterReply*) override {
    return grpc::Status::CANCELLED;
  }
  std::string address() const { return server_.address(); }

 private:
  const LoopbackServer server_{this};
};

TEST(TrainerTest, WorkerThatRegistersWhileTheJobEndsHasNotFailed) {
  EndingMaster master;
  const SteadyClock clock;
  Trainer trainer({.master = master.address(),
                   .credentials = grpc::InsecureChannelCredentials(),
                   .connect_timeout_seconds = 0.1},
                  &clock);
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
}

// A master that begins another run of the job while the worker of the first run waits for a lease: the call
// is cancelled, and the next one is of a registration that the new run does not know.
class GoingBackMaster final : public v1::MasterService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    *reply = ReplyWith(SmallestJob(), /*run_id=*/lease_calls_ == 0 ? 1 : 2, "127.0.0.1:1");
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest* request,
                        v1::RegisterReply* reply) override {
    reply->set_incarnation(request->run_id());
    reply->set_heartbeat_timeout_seconds(100);
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest* request, v1::Lease* lease) override {
    if (++lease_calls_ == 1) return grpc::Status::CANCELLED;
    if (request->incarnation() == 1) return grpc::Status(grpc::NOT_FOUND, "its token is missing");
    lease->set_state(v1::Lease::FINISHED);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request, v1::LeaveReply*) override {
    last_left_ = request->incarnation();
    return grpc::Status::OK;
  }

  uint64_t last_left() const { return last_left_; }
  std::string address() const { return server_.address(); }

 private:
  std::atomic<int> lease_calls_{0};
  std::atomic<uint64_t> last_left_{0};
  const LoopbackServer server_{this};
};

TEST(TrainerTest, WorkerOfAMasterThatGoesBackLogsThatAndNotHowItsRegistrationWasRefused) {
  FLAGS_logtostderr = true;
  GoingBackMaster master;
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  testing::internal::CaptureStderr();
  const absl::Status status = trainer.Run();
  const std::string log = testing::internal::GetCapturedStderr();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(log,
              HasSubstr("the master was restarted, or the job went back to a checkpoint; registering again"));
  EXPECT_THAT(log, Not(HasSubstr("its token is missing")));
}

TEST(TrainerTest, WorkerWhoseCallIsCancelledByAMasterThatGoesBackRegistersAgain) {
  GoingBackMaster master;
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.last_left(), 2u);
}

// A master that was started again after the job's end. It knows no registration.
class EndedMaster final : public v1::MasterService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    reply->set_ended("the job is DONE");
    return grpc::Status::OK;
  }
  std::string address() const { return server_.address(); }

 private:
  const LoopbackServer server_{this};
};

TEST(TrainerTest, WorkerThatLearnsThatTheJobHasEndedHasNotFailed) {
  EndedMaster master;
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  const absl::Status status = trainer.Run();
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

// A master that grants each membership of worker 0 one step, and then ends the membership, of the second one
// because the job is done.
class ExpiringMaster final : public v1::MasterService::Service {
 public:
  explicit ExpiringMaster(const v1::Job& job) : job_(job), servers_(job, LayoutOfJob(job)) {}

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    *reply = ReplyWith(job_, kRunId, servers_.addresses()[0]);
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterReply* reply) override {
    reply->set_incarnation(++incarnation_);
    reply->set_token(TestToken(incarnation_));
    reply->set_heartbeat_timeout_seconds(100);
    servers_.SetRosters({RosterOfLives(0, {{0, incarnation_}})});
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest* request, v1::Lease* lease) override {
    if (request->after() == 0) {
      lease->set_number(1);
      v1::SampleSpan* const span = lease->add_minibatches()->add_spans();
      span->set_end(4);
      return grpc::Status::OK;
    }
    if (request->progress().lease_steps() < 1) {
      lease->set_state(v1::Lease::WAIT);
      lease->set_retry_seconds(10);
      return grpc::Status::OK;
    }
    if (request->incarnation() == 1) return grpc::Status(grpc::NOT_FOUND, "the membership has expired");
    lease->set_state(v1::Lease::FINISHED);
    return grpc::Status::OK;
  }

  uint64_t memberships() const { return incarnation_; }
  std::vector<float> Weights() { return servers_.Weights(); }
  std::string address() const { return server_.address(); }

 private:
  const v1::Job job_;
  TestServers servers_;
  std::atomic<uint64_t> incarnation_{0};
  const LoopbackServer server_{this};
};

// With a residual of zero the second push would send the same values as the first one.
TEST(TrainerTest, WorkerThatRegistersAgainKeepsWhatTopKHasNotSent) {
  ExpiringMaster master(TopKJob());
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.memberships(), 2u);
  const std::vector<float> weights = master.Weights();
  const int64_t moved = kParameters - std::count(weights.begin(), weights.end(), 0.0f);
  EXPECT_GT(moved, kSent);
}

// A master without samples to assign. It asks workers that leave to stay: the first registration until the
// job has gone back, the second one until it has left `stays` times.
class StayingMaster final : public v1::MasterService::Service {
 public:
  struct Options {
    bool stops_first = false;    // ends the first registration by a heartbeat, instead of by its lease
    bool cancels_first = false;  // cancels the first call of the first registration
    int stays = 2;
  };
  explicit StayingMaster(Options options) : options_(options) {}

  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    *reply = ReplyWith(SmallestJob(), /*run_id=*/1, "127.0.0.1:1");
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterReply* reply) override {
    MutexLock lock(&mu_);
    leaves_.emplace_back();
    reply->set_incarnation(leaves_.size());
    reply->set_heartbeat_timeout_seconds(100);
    return grpc::Status::OK;
  }
  grpc::Status Heartbeat(grpc::ServerContext*, const v1::HeartbeatRequest* request,
                         v1::HeartbeatReply* reply) override {
    reply->set_stop(options_.stops_first && request->incarnation() == 1);
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest* request, v1::Lease* lease) override {
    const bool wait = options_.stops_first && request->incarnation() == 1;
    lease->set_state(wait ? v1::Lease::WAIT : v1::Lease::FINISHED);
    lease->set_retry_seconds(0.01);
    return grpc::Status::OK;
  }
  grpc::Status Leave(grpc::ServerContext*, const v1::LeaveRequest* request, v1::LeaveReply* reply) override {
    MutexLock lock(&mu_);
    std::vector<v1::LeaveRequest>& leaves = leaves_[request->incarnation() - 1];
    leaves.push_back(*request);
    changed_.Notify();
    if (options_.cancels_first && leaves_.size() == 1 && leaves.size() == 1) return grpc::Status::CANCELLED;
    const bool stays = static_cast<int>(leaves.size()) <= options_.stays;
    if (!stays && request->incarnation() == 1) return grpc::Status(grpc::NOT_FOUND, "of another run");
    if (stays) reply->set_again_in_seconds(0.01);
    return grpc::Status::OK;
  }

  void AwaitLeaves(size_t count) {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [&] { return !leaves_.empty() && leaves_[0].size() >= count; });
  }
  // The requests of each registration.
  std::vector<std::vector<v1::LeaveRequest>> leaves() {
    MutexLock lock(&mu_);
    return leaves_;
  }
  std::string address() const { return server_.address(); }

 private:
  const Options options_;
  Mutex mu_;
  CondVar changed_;
  std::vector<std::vector<v1::LeaveRequest>> leaves_ ABSL_GUARDED_BY(mu_);
  const LoopbackServer server_{this};
};

class StayingTest : public testing::TestWithParam<bool> {};

TEST_P(StayingTest, WorkerThatIsDoneRegistersAgainWhenTheJobGoesBack) {
  StayingMaster master({.stops_first = GetParam()});
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
  const std::vector<std::vector<v1::LeaveRequest>> leaves = master.leaves();
  ASSERT_EQ(leaves.size(), 2u);
  for (const std::vector<v1::LeaveRequest>& of : leaves) {
    EXPECT_EQ(of.size(), 3u);
    for (const v1::LeaveRequest& request : of) {
      EXPECT_TRUE(request.stays() && !request.failed()) << request.DebugString();
    }
  }
}

INSTANTIATE_TEST_SUITE_P(EndedBy, StayingTest, testing::Bool(),
                         [](const auto& info) { return info.param ? "Master" : "Lease"; });

TEST(TrainerTest, WorkerThatIsDoneRegistersAgainWhenItsFirstCallWasCancelled) {
  StayingMaster master({.stops_first = true, .cancels_first = true});
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  const absl::Status status = trainer.Run();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_EQ(master.leaves().size(), 2u);
}

TEST(TrainerTest, StopEndsAWorkerThatStays) {
  StayingMaster master({.stays = 1000000});
  const SteadyClock clock;
  Trainer trainer({.master = master.address(), .credentials = grpc::InsecureChannelCredentials()}, &clock);
  absl::Status status = absl::UnknownError("it has not ended");
  std::thread thread([&] { status = trainer.Run(); });
  master.AwaitLeaves(2);
  trainer.Stop();
  thread.join();
  EXPECT_TRUE(status.ok()) << status;
  ASSERT_EQ(master.leaves().size(), 1u);
  EXPECT_FALSE(master.leaves()[0].back().stays());
}

}  // namespace
}  // namespace catchment
