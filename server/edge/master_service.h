// gRPC's side of the master: every call goes straight on to the host.
#ifndef CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
#define CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_

#include <grpcpp/grpcpp.h>

#include "proto/master.grpc.pb.h"
#include "server/master_host.h"

namespace catchment {

// Threads: safe; runs on gRPC's own.
class MasterService final : public v1::MasterService::CallbackService {
 public:
  // `host` outlives the service.
  explicit MasterService(MasterHost* host) : host_(*host) {}

  using Context = grpc::CallbackServerContext;
  using Reactor = grpc::ServerUnaryReactor;
  Reactor* GetJob(Context*, const v1::GetJobRequest*, v1::GetJobReply*) override;
  Reactor* RegisterServer(Context*, const v1::RegisterServerRequest*, v1::RegisterServerReply*) override;
  Reactor* Register(Context*, const v1::RegisterRequest*, v1::RegisterReply*) override;
  Reactor* Heartbeat(Context*, const v1::HeartbeatRequest*, v1::HeartbeatReply*) override;
  Reactor* GetLease(Context*, const v1::GetLeaseRequest*, v1::Lease*) override;
  Reactor* Leave(Context*, const v1::LeaveRequest*, v1::LeaveReply*) override;
  Reactor* GetEvaluation(Context*, const v1::GetEvaluationRequest*, v1::GetEvaluationReply*) override;
  Reactor* ReportEvaluation(Context*, const v1::EvaluationReport*, v1::ReportEvaluationReply*) override;
  Reactor* GetStatus(Context*, const v1::GetStatusRequest*, v1::JobStatus*) override;
  Reactor* Stop(Context*, const v1::StopRequest*, v1::StopReply*) override;

 private:
  MasterHost& host_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_MASTER_SERVICE_H_
