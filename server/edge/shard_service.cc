#include "server/edge/shard_service.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/rpc.h"
#include "common/wire/protocol.h"
#include "server/edge/train_stream.h"

namespace catchment {
namespace {

// Ends a call that was not accepted.
class Refusal final : public grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer> {
 public:
  explicit Refusal(const absl::Status& status) { Finish(ToGrpc(status)); }
  void OnDone() override { delete this; }
};

class SnapshotStream final : public grpc::ServerWriteReactor<v1::Block> {
 public:
  explicit SnapshotStream(const absl::Status& status) { Finish(ToGrpc(status)); }

  explicit SnapshotStream(Shard* shard) : shard_(shard), weights_(shard->Weights()) {
    block_.set_version(shard->version());
    block_.set_fate(v1::Block::APPLIED);
    WriteNext();
  }

  void OnWriteDone(bool ok) override {
    if (ok) {
      WriteNext();
    } else {
      Finish(grpc::Status(grpc::StatusCode::CANCELLED, "the reader has gone"));
    }
  }
  void OnDone() override { delete this; }

 private:
  void WriteNext() {
    if (next_ == shard_->num_blocks()) {
      Finish(grpc::Status::OK);
      return;
    }
    const Range range = shard_->block_range(next_);
    block_.set_block(next_);
    const int64_t local = range.begin - shard_->block_range(0).begin;
    block_.set_payload(reinterpret_cast<const char*>(weights_.data() + local), range.size() * sizeof(float));
    ++next_;
    StartWrite(&block_);
  }

  Shard* const shard_ = nullptr;
  const std::vector<float> weights_;
  int next_ = 0;
  v1::Block block_;
};

}  // namespace

ShardService::ShardService(std::string job, const ParameterLayout& layout, Shard* shard,
                           ControlHandler control)
    : job_(std::move(job)), layout_(layout), shard_(shard), control_(std::move(control)) {}

grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* ShardService::Train(
    grpc::CallbackServerContext* context) {
  v1::Hello hello;
  if (absl::Status status = Admit(*context, &hello); !status.ok()) return new Refusal(status);
  return new TrainStream(context, shard_, hello);
}

absl::Status ShardService::Admit(const grpc::CallbackServerContext& context, v1::Hello* hello) const {
  const auto found = context.client_metadata().find(kHelloKey);
  if (found == context.client_metadata().end() ||
      !hello->ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return absl::InvalidArgumentError(
        "no Hello in the metadata 'catchment-hello-bin': the peer is no Catchment worker");
  }
  if (hello->protocol_version() != kProtocolVersion) {
    return absl::FailedPreconditionError(absl::StrCat("the worker speaks protocol version ",
                                                      hello->protocol_version(), ", this server ",
                                                      kProtocolVersion, ": use binaries of one release"));
  }
  if (hello->job() != job_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker works on job '", hello->job(), "', this server on '", job_, "'"));
  }
  if (hello->fingerprint() != layout_.fingerprint()) {
    return absl::FailedPreconditionError("the worker's model has other tensors than the server's");
  }
  if (hello->shard() != static_cast<uint32_t>(shard_->index()) ||
      hello->num_shards() != static_cast<uint32_t>(layout_.num_shards())) {
    return absl::FailedPreconditionError(absl::StrCat("the worker wants shard ", hello->shard(), " of ",
                                                      hello->num_shards(), ", this is shard ",
                                                      shard_->index(), " of ", layout_.num_shards()));
  }
  if (!shard_->IsMember(hello->worker(), hello->incarnation())) {
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", hello->worker(), ", incarnation ", hello->incarnation(),
                     ", is no member of the job (any more); register again"));
  }
  return absl::OkStatus();
}

grpc::ServerWriteReactor<v1::Block>* ShardService::Snapshot(grpc::CallbackServerContext*,
                                                            const v1::SnapshotRequest* request) {
  if (request->fingerprint() != layout_.fingerprint()) {
    return new SnapshotStream(
        absl::FailedPreconditionError("the reader's model has other tensors than the server's"));
  }
  return new SnapshotStream(shard_);
}

grpc::ServerUnaryReactor* ShardService::Control(grpc::CallbackServerContext* context,
                                                const v1::ShardCommand* request, v1::ShardReport* reply) {
  *reply = control_(*request);
  grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace catchment
