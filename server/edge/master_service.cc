#include "server/edge/master_service.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "server/edge/keep_best_stream.h"

namespace catchment {
namespace {

template <typename Reply>
absl::Status Put(absl::StatusOr<Reply> result, Reply* reply) {
  if (!result.ok()) return result.status();
  *reply = *std::move(result);
  return absl::OkStatus();
}

}  // namespace

Permission MasterService::For(absl::string_view method) const {
  return Permission(absl::StrCat(v1::MasterService::service_full_name(), ".", method), &token_key_);
}

void MasterService::Accept(CallQueue* queue) {
  UnaryCall<Async, v1::RegisterRequest, v1::RegisterReply>::Accept(
      queue, For("Register"), &service_, &Async::RequestRegister,
      [this](const auto& request, auto* reply) { return Put(host_.Register(request), reply); });
  UnaryCall<Async, v1::HeartbeatRequest, v1::HeartbeatReply>::Accept(
      queue, For("Heartbeat"), &service_, &Async::RequestHeartbeat,
      [this](const auto& request, auto* reply) { return Put(host_.Heartbeat(request), reply); });
  DeferredCall<Async, v1::GetLeaseRequest, v1::Lease>::Accept(
      queue, For("GetLease"), &service_, &Async::RequestGetLease,
      [this](const auto& request, auto respond) { host_.AwaitLease(request, std::move(respond)); });
  UnaryCall<Async, v1::GetEvaluationRequest, v1::GetEvaluationReply>::Accept(
      queue, For("GetEvaluation"), &service_, &Async::RequestGetEvaluation,
      [this](const auto& request, auto* reply) { return Put(host_.GetEvaluation(request), reply); });
  AcceptOthers(queue);
}

void MasterService::AcceptOthers(CallQueue* queue) {
  UnaryCall<Async, v1::GetJobRequest, v1::GetJobReply>::Accept(
      queue, For("GetJob"), &service_, &Async::RequestGetJob,
      [this](const auto&, auto* reply) { return Put(host_.GetJob(), reply); });
  UnaryCall<Async, v1::GetStatusRequest, v1::JobStatus>::Accept(
      queue, For("GetStatus"), &service_, &Async::RequestGetStatus, [this](const auto& request, auto* reply) {
        *reply = host_.GetStatus(request);
        return absl::OkStatus();
      });
  UnaryCall<Async, v1::RegisterServerRequest, v1::RegisterServerReply>::Accept(
      queue, For("RegisterServer"), &service_, &Async::RequestRegisterServer,
      [this](const auto& request, auto* reply) { return Put(host_.RegisterServer(request), reply); });
  UnaryCall<Async, v1::EvaluationReport, v1::ReportEvaluationReply>::Accept(
      queue, For("ReportEvaluation"), &service_, &Async::RequestReportEvaluation,
      [this](const auto& request, auto* reply) { return Put(host_.ReportEvaluation(request), reply); });
  KeepBestCall::Accept(
      queue, For("KeepBest"),
      [this](KeepBestCall* call, void* tag) {
        service_.RequestKeepBest(&call->context, &call->stream, call->queue.get(), call->queue.get(), tag);
      },
      [this](KeepBestCall* call) { KeepBestStream::Start(call, host_.best_keeper()); });
  DeferredCall<Async, v1::SaveWorkerStateRequest, v1::SaveWorkerStateReply>::Accept(
      queue, For("SaveWorkerState"), &service_, &Async::RequestSaveWorkerState,
      [this](const auto& request, auto respond) { host_.state_store()->Save(request, std::move(respond)); });
  DeferredCall<Async, v1::LoadWorkerStateRequest, v1::LoadWorkerStateReply>::Accept(
      queue, For("LoadWorkerState"), &service_, &Async::RequestLoadWorkerState,
      [this](const auto& request, auto respond) { host_.state_store()->Load(request, std::move(respond)); });
  UnaryCall<Async, v1::LeaveRequest, v1::LeaveReply>::Accept(
      queue, For("Leave"), &service_, &Async::RequestLeave, [this](const auto& request, auto* reply) {
        *reply = host_.Leave(request);
        return absl::OkStatus();
      });
  UnaryCall<Async, v1::StopRequest, v1::StopReply>::Accept(
      queue, For("Stop"), &service_, &Async::RequestStop, [this](const auto& request, auto*) {
        host_.Stop(request.reason().empty() ? "a stop was requested" : request.reason());
        return absl::OkStatus();
      });
}

}  // namespace catchment
