#include "tests/benchmarks/control_servers.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/job/job_layout.h"
#include "common/job/job_text.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "glog/logging.h"
#include "proto/master.grpc.pb.h"

namespace catchment {
namespace {

// The server_instance of server 0; the others' follow.
constexpr uint64_t kFirstInstance = 1'000'000;
constexpr double kCallSeconds = 10;

// Takes one answer, on the thread that pushes.
struct VersionSink final : AnswerSink {
  void Deliver(Answer answer) override { version = answer.header.version; }
  uint64_t version = 0;
};

}  // namespace

SimulatedServers::SimulatedServers(const v1::Job& job, std::vector<TensorSpec> tensors, int num_servers)
    : job_(job.name()), layout_(*LayoutOf(job, std::move(tensors), num_servers)), last_(num_servers - 1) {
  for (int s = 1; s < num_servers; ++s) {
    CHECK_EQ(layout_.num_blocks(s), 1);
    Shard::Contents contents;
    contents.weights.resize(layout_.shard(s).size());
    hosts_.push_back(std::make_unique<ShardHost>(job, layout_, s, std::move(contents), ""));
  }
  absl::StatusOr<Listener> listener =
      Listener::Open("127.0.0.1:0", grpc::InsecureServerCredentials(), {this}, {});
  CHECK(listener.ok()) << listener.status();
  listener_ = std::make_unique<Listener>(*std::move(listener));
}

SimulatedServers::~SimulatedServers() { listener_->Shutdown(0); }

void SimulatedServers::Accept(CallQueue* queue) {
  DeferredCall<Async, v1::ShardCommand, v1::ShardReport>::Accept(
      queue, Permission("catchment.v1.ShardService.Control"), {&service_, &Async::RequestControl},
      [this](const v1::ShardCommand& command, const auto& respond) {
        const uint64_t server = command.server_instance() - kFirstInstance;
        if (server < 1 || server > hosts_.size()) return respond(absl::NotFoundError("no such server"));
        v1::ShardReport report = hosts_[server - 1]->Control(command, clock_.Now());
        report.set_server_instance(command.server_instance());
        report.set_run_id(command.run().id());
        respond(std::move(report));
      });
}

absl::Status SimulatedServers::Register(const v1::Job& job, const std::string& master) {
  const auto channel = ConnectForControl(master, grpc::InsecureChannelCredentials());
  master_ = v1::ShardService::NewStub(channel);
  const auto stub = v1::MasterService::NewStub(channel);
  for (size_t s = 1; s <= hosts_.size(); ++s) {
    v1::RegisterServerRequest request;
    request.set_index(s);
    request.set_num_servers(hosts_.size() + 1);
    request.set_address(address());
    request.set_job_fingerprint(JobFingerprint(job));
    request.set_server_instance(kFirstInstance + s);
    request.set_protocol_version(kProtocolVersion);
    request.set_build(BuildVersion());
    v1::RegisterServerReply reply;
    RETURN_IF_ERROR(FromGrpc(stub->RegisterServer(DeadlineContext(kCallSeconds).get(), request, &reply)));
  }
  return absl::OkStatus();
}

absl::Status SimulatedServers::Push(uint32_t worker, uint64_t incarnation, uint64_t step) {
  const size_t pushes = std::min(hosts_.size(), kShardsPerStep);
  for (size_t i = 0; i < pushes; ++i) {
    const size_t server = (step * pushes + i) % hosts_.size();
    RETURN_IF_ERROR(PushTo(server, worker, incarnation, step));
  }
  return absl::OkStatus();
}

absl::Status SimulatedServers::Flush(uint64_t run_id, const v1::RegisterReply& worker, uint64_t step) {
  for (size_t server = 0; server < hosts_.size(); ++server) {
    RETURN_IF_ERROR(PushTo(server, worker.worker(), worker.incarnation(), step));
  }
  return PushToMaster(run_id, worker, step);
}

absl::Status SimulatedServers::PushToMaster(uint64_t run_id, const v1::RegisterReply& worker, uint64_t step) {
  v1::Hello hello;
  hello.set_protocol_version(kProtocolVersion);
  hello.set_job(job_);
  hello.set_fingerprint(layout_.fingerprint());
  hello.set_num_shards(layout_.num_shards());
  hello.set_worker(worker.worker());
  hello.set_incarnation(worker.incarnation());
  hello.set_run_id(run_id);
  hello.set_token(worker.token());
  const std::unique_ptr<grpc::ClientContext> context = DeadlineContext(kCallSeconds);
  context->AddMetadata(kHelloKey, hello.SerializeAsString());
  const auto stream = master_->Train(context.get());
  v1::Block block, answer;
  block.set_operation(v1::Block::PUSH);
  block.set_sequence(1);
  block.set_samples(1);
  block.set_steps(step);
  block.set_payload(std::string(layout_.shard(0).size() * sizeof(float), '\0'));
  const bool answered = stream->Write(block) && stream->Read(&answer);
  stream->WritesDone();
  const absl::Status status = FromGrpc(stream->Finish());
  return answered ? absl::OkStatus() : status;
}

absl::Status SimulatedServers::PushTo(size_t server, uint32_t worker, uint64_t incarnation, uint64_t step) {
  last_[server].resize(std::max<size_t>(last_[server].size(), worker + 1));
  Last& last = last_[server][worker];
  Shard& shard = *hosts_[server]->shard();
  const auto sink = std::make_shared<VersionSink>();
  const BlockHeader header{.operation = v1::Block::PUSH_PULL,
                           .sequence = ++last.sequence,
                           .version = last.version,
                           .samples = step > std::exchange(last.steps, step) ? 1u : 0u,
                           .steps = step};
  Request request = MakeRequest(worker, incarnation, header, sink);
  const std::vector<float> gradient(shard.block_range(0).size(), 1e-6f);
  const absl::string_view bytes(reinterpret_cast<const char*>(gradient.data()),
                                gradient.size() * sizeof(float));
  RETURN_IF_ERROR(
      shard.ReadPayload(PayloadView({&bytes, 1}, 0, bytes.size()), header.scale, &request.contribution));
  std::vector<Answer> answers;
  RETURN_IF_ERROR(shard.Handle(std::move(request), clock_.Now(), &answers));
  Deliver(&answers);
  last.version = sink->version;
  return absl::OkStatus();
}

}  // namespace catchment
