#include "server/edge/master_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/trace/recorder.h"
#include "common/wire/token.h"
#include "server/edge/keep_best_stream.h"
#include "server/host/run_start.h"

namespace catchment {
namespace {

template <typename Reply>
absl::Status Put(absl::StatusOr<Reply> result, Reply* reply) {
  ASSIGN_OR_RETURN(*reply, std::move(result));
  return absl::OkStatus();
}

}  // namespace

void MasterService::Serve(MasterHost* host) {
  host_ = host;
  token_key_ = host->token_key();
  // The clock of this process is the master's.
  const double now = clock_.Now();
  if (TraceRecorder* const trace = Trace()) trace->AddReading(now, now, now);
}

Permission MasterService::For(absl::string_view method, CallRate* rate) const {
  return Permission(absl::StrCat(v1::MasterService::service_full_name(), ".", method), &token_key_, rate);
}

template <typename Request, typename Reply>
void MasterService::AcceptCommitted(CallQueue* queue, const Permission& permission,
                                    typename DeferredCall<Async, Request, Reply>::Method ask,
                                    typename DeferredCall<Async, Request, Reply>::Handler handler) {
  using Call = DeferredCall<Async, Request, Reply>;
  Call::Accept(queue, permission, &service_, ask,
               [this, handler = std::move(handler)](const Request& request, typename Call::Respond respond) {
                 handler(request, [this, respond = std::move(respond)](absl::StatusOr<Reply> reply) {
                   RespondCommitted(std::move(reply), respond);
                 });
               });
}

template <typename Reply>
void MasterService::RespondCommitted(absl::StatusOr<Reply> reply,
                                     std::function<void(absl::StatusOr<Reply>)> respond) {
  host_->AfterCommit([respond = std::move(respond), reply = std::move(reply)](bool committed) {
    respond(committed ? reply : absl::UnavailableError("the master's run has ended"));
  });
}

void MasterService::Accept(CallQueue* queue) {
  DeferredCall<Async, v1::RegisterRequest, v1::RegisterReply>::AcceptWithContext(
      queue, For("Register", &registrations_), &service_, &Async::RequestRegister,
      [this](const auto& request, const grpc::ServerContext& context, auto respond) {
        RespondCommitted(WithTime(host_->Register(request, AddressOfPeer(context.peer()))),
                         std::move(respond));
      });
  // Workers must be able to send the next one while the standby cannot be reached.
  DeferredCall<Async, v1::HeartbeatRequest, v1::HeartbeatReply>::Accept(
      queue, For("Heartbeat"), &service_, &Async::RequestHeartbeat,
      [this](const auto& request, auto respond) {
        absl::StatusOr<v1::HeartbeatReply> reply = WithTime(host_->Heartbeat(request));
        if (reply.ok() && reply->stop()) return RespondCommitted(std::move(reply), std::move(respond));
        respond(std::move(reply));
      });
  AcceptCommitted<v1::GetLeaseRequest, v1::Lease>(
      queue, For("GetLease"), &Async::RequestGetLease,
      [this](const auto& request, auto respond) { host_->AwaitLease(request, std::move(respond)); });
  AcceptCommitted<v1::GetEvaluationRequest, v1::GetEvaluationReply>(
      queue, For("GetEvaluation"), &Async::RequestGetEvaluation,
      [this](const auto& request, auto respond) { respond(host_->GetEvaluation(request)); });
  AcceptCommitted<v1::EvaluationReport, v1::ReportEvaluationReply>(
      queue, For("ReportEvaluation"), &Async::RequestReportEvaluation,
      [this](const auto& request, auto respond) { respond(host_->ReportEvaluation(request)); });
  AcceptCommitted<v1::SaveWorkerStateRequest, v1::SaveWorkerStateReply>(
      queue, For("SaveWorkerState"), &Async::RequestSaveWorkerState,
      [this](const auto& request, auto respond) { host_->state_store()->Save(request, std::move(respond)); });
  AcceptCommitted<v1::LeaveRequest, v1::LeaveReply>(
      queue, For("Leave"), &Async::RequestLeave,
      [this](const auto& request, auto respond) { respond(host_->Leave(request)); });
  AcceptCommitted<v1::StopRequest, v1::StopReply>(
      queue, For("Stop"), &Async::RequestStop, [this](const auto& request, auto respond) {
        const absl::Status meant = host_->CheckMeant(request);
        if (!meant.ok()) return respond(meant);
        host_->Stop(request.reason().empty() ? "a stop was requested" : request.reason(), request.now());
        respond(v1::StopReply());
      });
  AcceptOthers(queue);
}

void MasterService::AcceptOthers(CallQueue* queue) {
  UnaryCall<Async, v1::GetJobRequest, v1::GetJobReply>::Accept(
      queue, For("GetJob"), &service_, &Async::RequestGetJob,
      [this](const auto&, auto* reply) { return Put(host_->GetJob(), reply); });
  UnaryCall<Async, v1::GetStatusRequest, v1::JobStatus>::Accept(
      queue, For("GetStatus"), &service_, &Async::RequestGetStatus, [this](const auto& request, auto* reply) {
        *reply = host_->GetStatus(request);
        return absl::OkStatus();
      });
  // The standby of the master is a server that registers.
  UnaryCall<Async, v1::RegisterServerRequest, v1::RegisterServerReply>::Accept(
      queue, For("RegisterServer"), &service_, &Async::RequestRegisterServer,
      [this](const auto& request, auto* reply) {
        return Put(WithTime(host_->RegisterServer(request)), reply);
      });
  KeepBestCall::Accept(
      queue, For("KeepBest"),
      [this](KeepBestCall* call, void* tag) {
        service_.RequestKeepBest(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
      },
      [this](KeepBestCall* call) { KeepBestStream::Start(call, host_->best_keeper()); });
  DeferredCall<Async, v1::LoadWorkerStateRequest, v1::LoadWorkerStateReply>::Accept(
      queue, For("LoadWorkerState"), &service_, &Async::RequestLoadWorkerState,
      [this](const auto& request, auto respond) { host_->state_store()->Load(request, std::move(respond)); });
}

// -------------------------------------------------------------------------------- a job that has ended

EndedMasterService::EndedMasterService(v1::RunRecord record, std::function<void()> on_told)
    : record_(std::move(record)), on_told_(std::move(on_told)), token_key_(NewTokenKey()) {}

absl::Status EndedMasterService::Failure() const {
  if (record_.phase() != v1::JobStatus::Phase_Name(v1::JobStatus::FAILED)) return absl::OkStatus();
  return absl::FailedPreconditionError(DescribeEnd(record_.phase(), record_.reason()));
}

template <typename Request, typename Reply>
void EndedMasterService::Refuse(CallQueue* queue, absl::string_view method,
                                typename DeferredCall<Async, Request, Reply>::Method ask,
                                absl::StatusCode code) {
  UnaryCall<Async, Request, Reply>::Accept(
      queue, For(method), &service_, ask, [this, code](const Request&, Reply*) -> absl::Status {
        return absl::Status(code, DescribeEnd(record_.phase(), record_.reason()));
      });
}

Permission EndedMasterService::For(absl::string_view method) const {
  return Permission(absl::StrCat(v1::MasterService::service_full_name(), ".", method), &token_key_);
}

void EndedMasterService::Accept(CallQueue* queue) {
  UnaryCall<Async, v1::GetJobRequest, v1::GetJobReply>::Accept(
      queue, For("GetJob"), &service_, &Async::RequestGetJob, [this](const auto&, auto* reply) {
        reply->set_ended(DescribeEnd(record_.phase(), record_.reason()));
        on_told_();
        return Failure();
      });
  UnaryCall<Async, v1::RegisterServerRequest, v1::RegisterServerReply>::Accept(
      queue, For("RegisterServer"), &service_, &Async::RequestRegisterServer,
      [this](const auto&, auto* reply) {
        reply->set_run_id(record_.run_id());
        reply->set_ended(DescribeEnd(record_.phase(), record_.reason()));
        return Failure();
      });
  UnaryCall<Async, v1::GetStatusRequest, v1::JobStatus>::Accept(
      queue, For("GetStatus"), &service_, &Async::RequestGetStatus, [this](const auto&, auto* status) {
        v1::JobStatus::Phase phase = v1::JobStatus::DONE;
        v1::JobStatus::Phase_Parse(record_.phase(), &phase);
        status->set_phase(phase);
        status->set_reason(record_.reason());
        status->set_recoveries(record_.recoveries());
        status->set_run_id(record_.run_id());
        return absl::OkStatus();
      });
  // All of these but Register and Stop need a token, which no member of an earlier run has. Register is
  // refused as for a member that has the job of an earlier run.
  Refuse<v1::RegisterRequest, v1::RegisterReply>(queue, "Register", &Async::RequestRegister,
                                                 absl::StatusCode::kAborted);
  Refuse<v1::HeartbeatRequest, v1::HeartbeatReply>(queue, "Heartbeat", &Async::RequestHeartbeat);
  Refuse<v1::GetLeaseRequest, v1::Lease>(queue, "GetLease", &Async::RequestGetLease);
  Refuse<v1::LeaveRequest, v1::LeaveReply>(queue, "Leave", &Async::RequestLeave);
  Refuse<v1::GetEvaluationRequest, v1::GetEvaluationReply>(queue, "GetEvaluation",
                                                           &Async::RequestGetEvaluation);
  Refuse<v1::EvaluationReport, v1::ReportEvaluationReply>(queue, "ReportEvaluation",
                                                          &Async::RequestReportEvaluation);
  Refuse<v1::SaveWorkerStateRequest, v1::SaveWorkerStateReply>(queue, "SaveWorkerState",
                                                               &Async::RequestSaveWorkerState);
  Refuse<v1::LoadWorkerStateRequest, v1::LoadWorkerStateReply>(queue, "LoadWorkerState",
                                                               &Async::RequestLoadWorkerState);
  Refuse<v1::StopRequest, v1::StopReply>(queue, "Stop", &Async::RequestStop);
}

}  // namespace catchment
