// A master of a small job, of which the test plays the daemons.
#ifndef CATCHMENT_TESTS_SERVER_HOST_MASTER_HOST_FIXTURE_H_
#define CATCHMENT_TESTS_SERVER_HOST_MASTER_HOST_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <future>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/job/data_sources.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/wire/protocol.h"
#include "server/edge/listener.h"
#include "server/edge/shard_service.h"
#include "server/host/master_host.h"
#include "server/shard/run_claim.h"
#include "tests/common/base/settable_clock.h"
#include "tests/conformance/jobs.h"
#include "tests/server/control/replay.h"
#include "worker/client/parameter_client.h"

namespace catchment {

inline constexpr uint64_t kSamples = 64;
inline constexpr uint32_t kBatch = 16;
inline constexpr uint64_t kRunId = 0xa1;
inline constexpr uint64_t kInstance = 500;  // of server 0
inline constexpr uint64_t kFirstIncarnation = 3000;

inline ParameterLayout LayoutOf(const v1::Job& job) {
  const DataShape data = ShapeOf(job.data());
  return *ParameterLayout::Create(ListTensors(*InferShapes(job.model(), data.input, data.target)), 2, 1000);
}

// A job of four steps on two servers, of which the test plays the daemons.
class MasterHostTest : public testing::Test {
 protected:
  // `keeps`: the master has a directory for checkpoints.
  explicit MasterHostTest(const std::string& more = "", bool keeps = true)
      : job_(
            PresetJob("sync", 1,
                      "batch_size: 16 data { drawn_digits { train_samples: 64 test_samples: 10 } } " + more)),
        layout_(LayoutOf(job_)),
        directory_(std::string(std::getenv("TEST_TMPDIR")) + "/" +
                   testing::UnitTest::GetInstance()->current_test_info()->name()) {
    for (int s : {0, 1}) {
      hosts_.push_back(std::make_unique<ShardHost>(
          job_, layout_, s, *MakeContents(job_, layout_, s, "", nullptr), directory_ + "/checkpoints",
          s == 0 && HasStandbys(job_, 2) ? &log_ : nullptr));
      ShardHost* const host = hosts_.back().get();
      claims_.push_back(std::make_unique<RunClaim>(kInstance + s));
      services_.push_back(std::make_unique<ShardService>(
          job_.name(), layout_, host->shard(), claims_.back().get(),
          [host](const v1::ShardCommand& command) { return host->Control(command, SteadyClock().Now()); }));
      listeners_.push_back(
          *Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {services_.back().get()}, {}));
    }
    options_.job = job_;
    options_.num_servers = 2;
    options_.servers = {"127.0.0.1:0", "127.0.0.1:0"};
    options_.credentials = grpc::InsecureChannelCredentials();
    if (keeps) options_.checkpoint_dir = directory_ + "/checkpoints";
    options_.out_dir = directory_ + "/out";
    options_.control_log = directory_ + "/control.log";
    options_.run_id = kRunId;
    options_.first_incarnation = kFirstIncarnation;
    master_ = *MasterHost::Create(options_, &layout_, hosts_[0].get(), &clock_, std::nullopt);
    master_->SetAddress(listeners_[0].address());
    EXPECT_TRUE(claims_[0]->Claim(master_->RunAt(listeners_[0].address())).ok());
  }
  // The calls of all masters of the test can be made again.
  ~MasterHostTest() override {
    master_.reset();
    for (Listener& listener : listeners_) listener.Shutdown(0);
    EXPECT_EQ(ReplayFile(options_.control_log), "");
  }

  v1::RegisterServerRequest Server1() const {
    v1::RegisterServerRequest request;
    request.set_index(1);
    request.set_num_servers(2);
    request.set_address(listeners_[1].address());
    request.set_job_fingerprint(JobFingerprint(job_));
    request.set_server_instance(kInstance + 1);
    request.set_protocol_version(kProtocolVersion);
    return request;
  }

  v1::RegisterRequest Worker() const {
    v1::RegisterRequest request;
    for (const TensorSpec& tensor : layout_.tensors()) {
      v1::TensorInfo* info = request.add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
    }
    request.set_train_samples(kSamples);
    request.set_device("a test");
    request.set_run_id(kRunId);
    request.set_protocol_version(kProtocolVersion);
    return request;
  }

  // Makes a call, and returns its reply.
  template <typename Reply, typename Request>
  absl::StatusOr<Reply> Ask(Request request) {
    const auto made = std::make_shared<std::promise<absl::StatusOr<v1::Reply>>>();
    auto reply = made->get_future();
    master_->Answer(MakeCall(std::move(request)), [made](auto one) { made->set_value(std::move(one)); });
    while (reply.wait_for(std::chrono::seconds(0)) != std::future_status::ready) {
      Replicate();
      std::this_thread::yield();
    }
    return TakeReply<Reply>(reply.get());
  }
  void Stop(const std::string& reason) {
    v1::StopRequest request;
    request.set_reason(reason);
    EXPECT_TRUE(Ask<v1::StopReply>(request).ok());
  }
  // Takes over what the log has, as a standby does. Returns false if there was nothing.
  virtual bool Replicate() { return false; }

  // Another process, with initial weights, takes the place of server 1 at its address.
  void RestartServer1(uint64_t instance) {
    listeners_[1].Shutdown(0);
    hosts_[1] =
        std::make_unique<ShardHost>(job_, layout_, 1, *MakeContents(job_, layout_, 1, "", nullptr), "");
    claims_[1] = std::make_unique<RunClaim>(instance);
    ShardHost* const host = hosts_[1].get();
    services_[1] = std::make_unique<ShardService>(
        job_.name(), layout_, host->shard(), claims_[1].get(),
        [host](const v1::ShardCommand& command) { return host->Control(command, SteadyClock().Now()); });
    const std::string address = listeners_[1].address();
    listeners_.pop_back();
    listeners_.push_back(
        *Listener::Open(address, grpc::InsecureServerCredentials(), {services_[1].get()}, {}));
  }

  // Members that have not left by then are not waited for.
  void ExpectFailedFor(const std::string& reason) {
    while (master_->Status().phase() != v1::JobStatus::FAILED) std::this_thread::yield();
    clock_.Advance(1000);
    const absl::Status status = master_->Wait();
    EXPECT_FALSE(status.ok());
    EXPECT_THAT(std::string(status.message()), testing::HasSubstr(reason));
    EXPECT_THAT(master_->Status().events(), testing::Contains(testing::HasSubstr(reason)));
    EXPECT_EQ(master_->Status().phase(), v1::JobStatus::FAILED);
  }

  // All steps of the leases that a worker is given, with gradients of ones.
  void Train(const v1::RegisterReply& me) {
    ParameterClient client({{listeners_[0].address(), listeners_[1].address()},
                            grpc::InsecureChannelCredentials(),
                            job_.name(),
                            me.worker(),
                            me.incarnation(),
                            60,
                            v1::Compression(),
                            kRunId,
                            me.token()},
                           &layout_, &clock_);
    const std::vector<float> gradient(layout_.size(), 1.0f);
    std::vector<float> weights(layout_.size());
    v1::GetLeaseRequest request;
    request.set_worker(me.worker());
    request.set_incarnation(me.incarnation());
    v1::Progress* progress = request.mutable_progress();
    while (true) {
      const absl::StatusOr<v1::Lease> lease = Ask<v1::Lease>(request);
      ASSERT_TRUE(lease.ok()) << lease.status();
      if (lease->state() == v1::Lease::FINISHED) break;
      if (lease->state() == v1::Lease::WAIT) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(lease->total_samples(), kSamples);
      if (progress->steps() == 0) {
        ASSERT_TRUE(client.Pull(lease->first_version(), absl::MakeSpan(weights)).ok());
      }
      progress->set_lease(lease->number());
      progress->set_lease_steps(lease->minibatches_size());
      for (int i = 0; i < lease->minibatches_size(); ++i) {
        progress->set_steps(progress->steps() + 1);
        ASSERT_TRUE(client.PushPull(gradient, kBatch, absl::MakeSpan(weights), progress->steps()).ok());
        progress->set_samples(progress->samples() + kBatch);
      }
      request.set_after(lease->number());
    }
    v1::LeaveRequest leave;
    leave.set_worker(me.worker());
    leave.set_incarnation(me.incarnation());
    *leave.mutable_progress() = *progress;
    ASSERT_TRUE(Ask<v1::LeaveReply>(leave).ok());
  }

  SettableClock clock_;
  const v1::Job job_;
  const ParameterLayout layout_;
  const std::string directory_;
  MasterHost::Options options_;
  StandbyLog log_;  // of shard 0 and the master, if the job has standbys
  std::vector<std::unique_ptr<ShardHost>> hosts_;
  std::vector<std::unique_ptr<RunClaim>> claims_;
  std::vector<std::unique_ptr<ShardService>> services_;
  std::vector<Listener> listeners_;
  std::unique_ptr<MasterHost> master_;
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_SERVER_HOST_MASTER_HOST_FIXTURE_H_
