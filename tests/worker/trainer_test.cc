#include "worker/trainer.h"

#include <glog/logging.h>
#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "common/job/validate.h"
#include "common/mutex.h"
#include "common/wire/protocol.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"
#include "tests/common/rpc/loopback_server.h"

namespace catchment {
namespace {

v1::Job SmallestJob() {
  v1::Job job;
  job.set_batch_size(4);
  job.set_epochs(1);
  job.mutable_data()->mutable_synthetic()->set_samples(8);
  job.mutable_model()->mutable_synthetic()->set_parameters(4);
  const absl::StatusOr<v1::Job> filled = FillDefaultsAndValidate(job);
  CHECK(filled.ok()) << filled.status();
  return *filled;
}

// A master that takes every worker, and refuses it a lease.
class RefusingMaster final : public v1::MasterService::Service {
 public:
  grpc::Status GetJob(grpc::ServerContext*, const v1::GetJobRequest*, v1::GetJobReply* reply) override {
    reply->set_protocol_version(kProtocolVersion);
    reply->set_run_id(1);
    reply->add_servers("127.0.0.1:1");
    *reply->mutable_job() = SmallestJob();
    return grpc::Status::OK;
  }
  grpc::Status Register(grpc::ServerContext*, const v1::RegisterRequest*, v1::RegisterReply* reply) override {
    MutexLock lock(&mu_);
    registered_at_.push_back(SteadyClock().Now());
    reply->set_incarnation(registered_at_.size());
    reply->set_lease_seconds(10);
    changed_.Notify();
    return grpc::Status::OK;
  }
  grpc::Status GetLease(grpc::ServerContext*, const v1::GetLeaseRequest*, v1::Lease*) override {
    return grpc::Status(grpc::FAILED_PRECONDITION, "no");
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
  const LoopbackServer server_{this};
};

TEST(TrainerTest, RefusedWorkerRegistersAgainAfterGrowingPauses) {
  RefusingMaster master;
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

}  // namespace
}  // namespace catchment
