#include "server/edge/master_service.h"

#include "common/rpc.h"

namespace catchment {
namespace {

using Context = MasterService::Context;
using Reactor = MasterService::Reactor;

Reactor* Finish(Context* context, const absl::Status& status) {
  Reactor* const reactor = context->DefaultReactor();
  reactor->Finish(ToGrpc(status));
  return reactor;
}

template <typename Reply>
Reactor* Finish(Context* context, absl::StatusOr<Reply> result, Reply* reply) {
  if (result.ok()) *reply = *std::move(result);
  return Finish(context, result.status());
}

}  // namespace

Reactor* MasterService::GetJob(Context* context, const v1::GetJobRequest*, v1::GetJobReply* reply) {
  return Finish(context, host_.GetJob(), reply);
}

Reactor* MasterService::RegisterServer(Context* context, const v1::RegisterServerRequest* request,
                                       v1::RegisterServerReply*) {
  return Finish(context, host_.RegisterServer(*request));
}

Reactor* MasterService::Register(Context* context, const v1::RegisterRequest* request,
                                 v1::RegisterReply* reply) {
  return Finish(context, host_.Register(*request), reply);
}

Reactor* MasterService::Heartbeat(Context* context, const v1::HeartbeatRequest* request,
                                  v1::HeartbeatReply* reply) {
  return Finish(context, host_.Heartbeat(*request), reply);
}

Reactor* MasterService::GetLease(Context* context, const v1::GetLeaseRequest* request, v1::Lease* reply) {
  return Finish(context, host_.GetLease(*request), reply);
}

Reactor* MasterService::Leave(Context* context, const v1::LeaveRequest* request, v1::LeaveReply*) {
  host_.Leave(*request);
  return Finish(context, absl::OkStatus());
}

Reactor* MasterService::GetEvaluation(Context* context, const v1::GetEvaluationRequest* request,
                                      v1::GetEvaluationReply* reply) {
  return Finish(context, host_.GetEvaluation(*request), reply);
}

Reactor* MasterService::ReportEvaluation(Context* context, const v1::EvaluationReport* request,
                                         v1::ReportEvaluationReply*) {
  return Finish(context, host_.ReportEvaluation(*request));
}

Reactor* MasterService::GetStatus(Context* context, const v1::GetStatusRequest*, v1::JobStatus* reply) {
  *reply = host_.Status();
  return Finish(context, absl::OkStatus());
}

Reactor* MasterService::Stop(Context* context, const v1::StopRequest* request, v1::StopReply*) {
  host_.Stop(request->reason().empty() ? "asked to stop" : request->reason());
  return Finish(context, absl::OkStatus());
}

}  // namespace catchment
