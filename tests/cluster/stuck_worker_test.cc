// Workers that send heartbeats and do not train: a synchronous job names them, and goes on without them.
#include <chrono>
#include <thread>

#include "absl/strings/str_cat.h"
#include "common/net/rpc.h"
#include "common/wire/token.h"
#include "tests/cluster/test_cluster.h"

namespace catchment {
namespace {

// Registers as a worker of SmallJob and sends heartbeats for as long as it is a member.
class IdleMember {
 public:
  explicit IdleMember(const std::string& master)
      : stub_(v1::MasterService::NewStub(Connect(master, grpc::InsecureChannelCredentials()))) {}

  absl::Status Register(const v1::RegisterRequest& request) {
    const auto context = DeadlineContext(kPatience);
    v1::RegisterReply reply;
    absl::Status status = FromGrpc(stub_->Register(context.get(), request, &reply));
    token_ = reply.token();
    heartbeat_.set_worker(reply.worker());
    heartbeat_.set_incarnation(reply.incarnation());
    return status;
  }
  // Returns why it is a member no more.
  absl::Status BeatUntilRefused() {
    while (true) {
      const auto context = DeadlineContext(kPatience);
      context->AddMetadata(kTokenMetadata, token_);
      v1::HeartbeatReply reply;
      if (absl::Status status = FromGrpc(stub_->Heartbeat(context.get(), heartbeat_, &reply)); !status.ok())
        return status;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  }
  v1::MasterService::Stub* stub() { return stub_.get(); }

 private:
  const std::unique_ptr<v1::MasterService::Stub> stub_;
  v1::HeartbeatRequest heartbeat_;
  std::string token_;
};

TEST(StuckWorkerTest, MemberThatNeverPushesIsNamedAndRemoved) {
  TestCluster cluster({SmallJob("sync",
                                "epochs: 3 batch_size: 10 workers: 2 "
                                "faults { heartbeat_timeout_seconds: 1 hold_up_seconds: 6 } "),
                       /*servers=*/2});
  ASSERT_TRUE(cluster.StartServers());
  IdleMember member(cluster.master());
  v1::GetJobReply job;
  // Unavailable until all servers have registered.
  ASSERT_TRUE(Await([&] {
    const auto context = DeadlineContext(kPatience);
    return FromGrpc(member.stub()->GetJob(context.get(), {}, &job)).ok();
  }));
  v1::RegisterRequest request;
  request.set_train_samples(2000);
  request.set_host("hanging");
  request.set_run_id(job.run_id());
  request.set_protocol_version(job.protocol_version());
  const std::vector<std::pair<std::string, std::vector<int64_t>>> tensors = {{"dense1.weight", {32, 784}},
                                                                             {"dense1.bias", {32}},
                                                                             {"dense2.weight", {10, 32}},
                                                                             {"dense2.bias", {10}}};
  for (const auto& [name, shape] : tensors) {
    v1::TensorInfo* tensor = request.add_tensors();
    tensor->set_name(name);
    tensor->mutable_shape()->Add(shape.begin(), shape.end());
  }
  const absl::Status registered = member.Register(request);
  ASSERT_TRUE(registered.ok()) << registered;
  cluster.StartWorkers(1);

  const absl::Status refused = member.BeatUntilRefused();
  EXPECT_EQ(refused.code(), absl::StatusCode::kNotFound) << refused;
  ASSERT_TRUE(cluster.AwaitOrderlyEnd());
  EXPECT_EQ(cluster.Summary()["samples"], 6000);
  EXPECT_TRUE(
      cluster.AwaitOutput(cluster.server(0), "no_progress: worker 0 (hanging:0) has work and has made"));
}

}  // namespace
}  // namespace catchment
