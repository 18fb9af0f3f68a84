// The cost of a connected worker at a server: no thread, and little memory while it computes after a push.
// The workers are connections of this process that speak to the real daemon by hand.
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/job/data_sources.h"
#include "common/job/job_text.h"
#include "common/job/model_shapes.h"
#include "common/job/parameter_layout.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "gtest/gtest.h"
#include "proto/master.grpc.pb.h"
#include "tests/cluster/test_cluster.h"
#include "tests/server/edge/raw_stream.h"

namespace catchment {
namespace {

constexpr int64_t kBlock = 1 << 18;  // values, 1 MiB
constexpr int kBlocks = 4;
constexpr char kJob[] = R"(
    name: "many"
    model { synthetic { parameters: 1048576 } }
    data { synthetic {} }
    algorithm { preset: "downpour" }
    faults { heartbeat_timeout_seconds: 1000 }
)";

// The number behind `key` in /proc/PID/status.
int64_t StatusOf(pid_t pid, const std::string& key) {
  std::ifstream status(absl::StrCat("/proc/", pid, "/status"));
  for (std::string line; std::getline(status, line);) {
    if (line.rfind(key + ":", 0) == 0) return std::stoll(line.substr(key.size() + 1));
  }
  ADD_FAILURE() << "no " << key << " of process " << pid;
  return 0;
}

class ManyWorkersTest : public testing::Test {
 protected:
  ManyWorkersTest() : cluster_({kJob}), payload_(kBlock * sizeof(float), '\0') {}

  void SetUp() override {
    ASSERT_TRUE(cluster_.StartServers());
    stub_ = v1::MasterService::NewStub(Connect(cluster_.master(), grpc::InsecureChannelCredentials()));
    const absl::StatusOr<v1::Job> job = LoadJob(cluster_.job_file());
    ASSERT_TRUE(job.ok()) << job.status();
    const DataShape data = ShapeOf(job->data());
    for (const TensorSpec& tensor : ListTensors(*InferShapes(job->model(), data.input, data.target))) {
      v1::TensorInfo* const info = request_.add_tensors();
      info->set_name(tensor.name);
      info->mutable_shape()->Add(tensor.shape.begin(), tensor.shape.end());
      tensors_.push_back(tensor);
    }
    v1::GetJobReply reply;
    absl::Status reached;
    do {  // until the server has made its shard, and has registered
      reached = FromGrpc(stub_->GetJob(DeadlineContext(60).get(), v1::GetJobRequest(), &reply), "");
    } while (IsNotReady(reached));
    ASSERT_TRUE(reached.ok()) << reached;
    request_.set_run_id(reply.run_id());
    request_.set_protocol_version(kProtocolVersion);
    request_.set_role(v1::WORKER);
    request_.set_train_samples(1000000);
  }

  // Another worker registers, connects and pushes twice.
  void Join() {
    v1::RegisterReply me;
    const auto context = DeadlineContext(60);
    const grpc::Status status = stub_->Register(context.get(), request_, &me);
    ASSERT_TRUE(status.ok()) << status.error_message();
    v1::Hello hello;
    hello.set_protocol_version(kProtocolVersion);
    hello.set_job("many");
    hello.set_fingerprint(ParameterLayout::Create(tensors_, 1, kBlock)->fingerprint());
    hello.set_num_shards(1);
    hello.set_worker(me.worker());
    hello.set_incarnation(me.incarnation());
    hello.set_run_id(request_.run_id());
    hello.set_token(me.token());
    const std::string bytes = hello.SerializeAsString();
    // The shard hears of the member a moment after the master.
    ASSERT_TRUE(Await([&] {
      workers_.push_back(std::make_unique<RawStream>(cluster_.master(), &bytes));
      if (Push(workers_.back().get(), 1, 0)) return true;
      workers_.pop_back();
      return false;
    }));
    for (uint32_t block = 1; block < kBlocks; ++block) ASSERT_TRUE(Push(workers_.back().get(), 1, block));
    for (uint32_t block = 0; block < kBlocks; ++block) ASSERT_TRUE(Push(workers_.back().get(), 2, block));
  }

  bool Push(RawStream* worker, uint64_t sequence, uint32_t block) {
    v1::Block push, answer;
    push.set_operation(v1::Block::PUSH_PULL);
    push.set_sequence(sequence);
    push.set_block(block);
    push.set_samples(sequence == 1);  // it has no lease, so no steps
    push.set_payload(payload_);
    return worker->Write(push) && worker->Read(&answer) && answer.fate() == v1::Block::APPLIED;
  }

  int64_t ServerStatus(const std::string& key) { return StatusOf(cluster_.server(0).pid(), key); }

  TestCluster cluster_;
  const std::string payload_;
  std::unique_ptr<v1::MasterService::Stub> stub_;
  v1::RegisterRequest request_;
  std::vector<TensorSpec> tensors_;
  std::vector<std::unique_ptr<RawStream>> workers_;
};

TEST_F(ManyWorkersTest, ServerHasAsManyThreadsWithFiftyAsWithOne) {
  Join();
  const int64_t with_one = ServerStatus("Threads");
  for (int i = 1; i < 50; ++i) Join();
  // gRPC starts one or two threads for timers when they are first needed.
  EXPECT_LE(ServerStatus("Threads"), with_one + 2);
}

TEST_F(ManyWorkersTest, IdleWorkerTakesLessThan256KiB) {
  constexpr int kWorkers = 200;
  const int64_t before = ServerStatus("VmRSS");
  for (int i = 0; i < kWorkers; ++i) Join();
  const int64_t busy = ServerStatus("VmRSS");
  int64_t each = 0;
  EXPECT_TRUE(Await([&] {
    each = (ServerStatus("VmRSS") - before) / kWorkers;
    return each < 256;
  })) << each
      << " KiB";
  RecordProperty("kib_per_worker", static_cast<int>(each));
  RecordProperty("kib_per_worker_at_first", static_cast<int>((busy - before) / kWorkers));
}

}  // namespace
}  // namespace catchment
