#include "server/edge/master_service.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/trace/recorder.h"
#include "common/wire/token.h"
#include "server/edge/keep_best_stream.h"
#include "server/host/run_start.h"

namespace catchment {

// The method of a MethodCall.
class MasterCalls::Method {
 public:
  using Request = v1::Call;
  using Reply = v1::Reply;
  using Writer = grpc::ServerAsyncResponseWriter<google::protobuf::Message>;

  Method(MasterCalls* service, const MasterMethod& method) : service_(*service), method_(method) {}

  void AskForNext(grpc::ServerContext* context, v1::Call* call, Writer* writer,
                  grpc::ServerCompletionQueue* queue, void* tag) const {
    service_.RequestAsyncUnary(method_.method->index(), context,
                               call->GetReflection()->MutableMessage(call, method_.request), writer, queue,
                               queue, tag);
  }
  void NoteSender(const grpc::ServerContext& context, v1::Call* call) const {
    if (call->has_register_()) call->set_address(AddressOfPeer(context.peer()));
  }
  const google::protobuf::Message& MessageOf(const v1::Call& call) const {
    return call.GetReflection()->GetMessage(call, method_.request);
  }
  const google::protobuf::Message& MessageOf(const v1::Reply& reply) const {
    return reply.GetReflection()->GetMessage(reply, method_.reply);
  }

 private:
  MasterCalls& service_;
  const MasterMethod& method_;
};

void MasterCalls::Accept(CallQueue* queue, const std::string* token_key, CallRate* registrations,
                         const Handler& handler) {
  for (const MasterMethod& method : MasterMethods()) {
    const bool registers = method.request->number() == v1::Call::kRegisterFieldNumber;
    MethodCall<Method>::Accept(
        queue, Permission(method.method->full_name(), token_key, registers ? registrations : nullptr),
        Method(this, method), handler);
  }
}

void MasterService::Serve(MasterHost* host) {
  host_ = host;
  token_key_ = host->token_key();
  // The clock of this process is the master's.
  const double now = clock_.Now();
  if (TraceRecorder* const trace = Trace()) trace->AddReading(now, now, now);
}

void MasterService::Accept(CallQueue* queue) {
  service_.Accept(queue, &token_key_, &registrations_,
                  [this](const v1::Call& call, Respond respond) { host_->Answer(call, std::move(respond)); });
  KeepBestCall::Accept(
      queue, Permission("catchment.v1.MasterService.KeepBest", &token_key_),
      [this](KeepBestCall* call, void* tag) {
        service_.RequestKeepBest(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
      },
      [this](KeepBestCall* call) { KeepBestStream::Start(call, host_->best_keeper()); });
}

// -------------------------------------------------------------------------------- a job that has ended

EndedMasterService::EndedMasterService(v1::RunRecord record, std::function<void()> on_told)
    : record_(std::move(record)), on_told_(std::move(on_told)), token_key_(NewTokenKey()) {}

void EndedMasterService::Accept(CallQueue* queue) {
  service_.Accept(queue, &token_key_, nullptr,
                  [this](const v1::Call& call, const Respond& respond) { respond(Answer(call)); });
}

absl::StatusOr<v1::Reply> EndedMasterService::Answer(const v1::Call& call) const {
  const std::string end = DescribeEnd(record_.phase(), record_.reason());
  v1::JobStatus::Phase phase = v1::JobStatus::DONE;
  v1::JobStatus::Phase_Parse(record_.phase(), &phase);
  const absl::Status failure =
      phase == v1::JobStatus::FAILED ? absl::FailedPreconditionError(end) : absl::OkStatus();
  v1::Reply reply;
  switch (call.request_case()) {
    case v1::Call::kGetJob:
      reply.mutable_get_job()->set_ended(end);
      on_told_();
      RETURN_IF_ERROR(failure);
      return reply;
    case v1::Call::kRegisterServer:
      reply.mutable_register_server()->set_run_id(record_.run_id());
      reply.mutable_register_server()->set_ended(end);
      RETURN_IF_ERROR(failure);
      return reply;
    case v1::Call::kGetStatus:
      reply.mutable_get_status()->set_phase(phase);
      reply.mutable_get_status()->set_reason(record_.reason());
      reply.mutable_get_status()->set_recoveries(record_.recoveries());
      reply.mutable_get_status()->set_run_id(record_.run_id());
      return reply;
    case v1::Call::kRegister:
      // As to a member that has the job of an earlier run, so that it requests the job.
      return absl::AbortedError(end);
    default:
      // All of these but Stop need a token, which no member of an earlier run has.
      return absl::NotFoundError(end);
  }
}

}  // namespace catchment
