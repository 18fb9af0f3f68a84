#include "server/edge/shard_service.h"

#include <memory>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/net/rpc.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"

namespace catchment {
namespace {

// The largest number of snapshot streams of workers and evaluators, each of which has a copy of the shard.
constexpr size_t kMaxSnapshots = 8;
// Further places, which only servers may take, so that the master can always read the final weights.
constexpr size_t kPlacesOfServers = 2;

}  // namespace

ShardService::ShardService(std::string job, const ParameterLayout& layout, Shard* shard, RunClaim* claim,
                           ControlHandler control, const Options& options)
    : front_(options.front == nullptr ? &own_front_ : options.front),
      job_(std::move(job)),
      layout_(layout),
      shard_(shard),
      claim_(claim),
      control_(std::move(control)),
      arena_(
          options.shared_memory
              ? SharedArena::Reserve("answers", kArenaShards * layout.shard(shard->index()).size(), "workers")
              : nullptr),
      context_{shard,     &appliers_,
               &streams_, RateFloor(options.slowest_bytes_per_second, layout.most_in_block() * sizeof(float)),
               {},        options.log},
      timer_(shard->has_quorum() ? std::make_unique<DeadlineTimer>(shard, options.log) : nullptr),
      appliers_(options.apply) {
  context_.timer = timer_.get();
  context_.arena = arena_.get();
  context_.most_offered = kArenaVectors * layout.size();
  if (arena_ != nullptr) shard->pool()->UseMemory(arena_);
  front_->target_ = this;
}

void ShardService::Sweep(double now) {
  streams_.Sweep(now);
  snapshots_.Sweep(now);
}

Permission ShardService::For(absl::string_view method) {
  return Permission(absl::StrCat(v1::ShardService::service_full_name(), ".", method));
}

void ShardService::Front::Accept(CallQueue* queue) {
  TrainCall::Accept(
      queue, For("Train"),
      [this](TrainCall* call, void* tag) {
        service_.RequestTrain(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
      },
      [this](TrainCall* call) { target_->Train(call); });
  SnapshotCall::Accept(
      queue, For("Snapshot"),
      [this](SnapshotCall* call, void* tag) {
        service_.RequestSnapshot(&call->context, &call->request, &call->stream, call->queue.get(),
                                 call->queue.get(), tag);
      },
      [this](SnapshotCall* call) { target_->Snapshot(call); });
  DeferredCall<Async, v1::ShardCommand, v1::ShardReport>::Accept(
      queue, For("Control"), {&service_, &Async::RequestControl},
      [this](const v1::ShardCommand& command, auto respond) {
        target_->Control(command, std::move(respond));
      });
}

void ShardService::Control(const v1::ShardCommand& command,
                           std::function<void(absl::StatusOr<v1::ShardReport>)> respond) {
  if (absl::Status status = claim_->Admit(command); !status.ok()) return respond(std::move(status));
  v1::ShardReport report = control_(command);
  report.set_server_instance(claim_->server_instance());
  report.set_run_id(command.run().id());
  StandbyLog* const log = context_.log;
  if (log != nullptr) log->Flush();
  // At the end of the job the standby may have gone already.
  if (log == nullptr || command.stop()) return respond(std::move(report));
  switch (log->Await(log->last(), [report, respond](bool acknowledged) {
    acknowledged ? respond(report) : respond(LogHasEnded());
  })) {
    case StandbyLog::Wait::kAcknowledged:
      return respond(std::move(report));
    case StandbyLog::Wait::kLater:
      return;
    case StandbyLog::Wait::kNever:
      return respond(LogHasEnded());
  }
}

void ShardService::Train(TrainCall* call) {
  v1::Hello hello;
  if (absl::Status status = Admit(call->context, &hello); !status.ok()) {
    call->Finish(ToGrpc(status));
    return;
  }
  const auto stream = std::make_shared<TrainStream>(call, &context_, hello);
  call->Start(stream.get());
  stream->Start(hello);
}

absl::Status ShardService::Admit(const grpc::ServerContext& context, v1::Hello* hello) const {
  const auto found = context.client_metadata().find(kHelloKey);
  if (found == context.client_metadata().end() ||
      !hello->ParseFromArray(found->second.data(), static_cast<int>(found->second.size()))) {
    return absl::InvalidArgumentError(
        "no Hello in the metadata 'catchment-hello-bin': the peer is not a Catchment worker");
  }
  RETURN_IF_ERROR(CheckLimits(*hello));
  RETURN_IF_ERROR(CheckProtocolVersion("the worker", hello->protocol_version(), /*build=*/"", "this server"));
  if (hello->job() != job_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the worker belongs to job '", hello->job(), "', this server to '", job_, "'"));
  }
  if (hello->fingerprint() != layout_.fingerprint()) {
    return absl::FailedPreconditionError("the worker's model has different tensors than the server's");
  }
  if (hello->shard() != static_cast<uint32_t>(shard_->index()) ||
      hello->num_shards() != static_cast<uint32_t>(layout_.num_shards())) {
    return absl::FailedPreconditionError(absl::StrCat("the worker wants shard ", hello->shard(), " of ",
                                                      hello->num_shards(), ", this is shard ",
                                                      shard_->index(), " of ", layout_.num_shards()));
  }
  if (context_.log != nullptr && claim_->run().id() == 0)
    return absl::UnavailableError("this server has just started and will restore its shard");
  RETURN_IF_ERROR(claim_->Check(hello->run_id(), "the worker"));
  if (shard_->generation() == 0)
    return absl::UnavailableError("this server has not received the list of the job's workers yet");
  if (!shard_->IsMember(hello->worker(), hello->incarnation())) {
    return absl::AbortedError(absl::StrCat("worker ", hello->worker(), ", incarnation ", hello->incarnation(),
                                           ", is not, or no longer, a member of the job; register again"));
  }
  if (!IsTokenOf(claim_->run().token_key(), hello->incarnation(), hello->token())) {
    return absl::AbortedError(absl::StrCat("Hello.token is not that of the registration of worker ",
                                           hello->worker(), ", incarnation ", hello->incarnation(),
                                           "; register again"));
  }
  return absl::OkStatus();
}

absl::Status ShardService::AdmitReader(const v1::SnapshotRequest& request) const {
  if (request.fingerprint() != layout_.fingerprint()) {
    return absl::FailedPreconditionError("the reader's model has different tensors than the server's");
  }
  return claim_->Check(request.run_id(), "the reader");
}

void ShardService::Snapshot(SnapshotCall* call) {
  if (absl::Status status = AdmitReader(call->request); !status.ok()) {
    call->Finish(ToGrpc(status));
    return;
  }
  const bool of_server = IsTokenOf(claim_->run().token_key(), kServersIncarnation, TokenOf(call->context));
  const auto stream = std::make_shared<SnapshotStream>(call, shard_, &snapshots_, context_.floor);
  if (!snapshots_.AddUpTo(kMaxSnapshots + (of_server ? kPlacesOfServers : 0), stream)) {
    call->Finish(ToGrpc(absl::UnavailableError(
        absl::StrCat(kMaxSnapshots, " snapshots are being read already; try again later"))));
    return;
  }
  call->Start(stream.get());
  stream->Start();
}

}  // namespace catchment
