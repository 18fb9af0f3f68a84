// The part of the control loop that answers calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random_id.h"
#include "common/base/status_macros.h"
#include "common/base/version.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "server/control/control_loop.h"

namespace catchment {

absl::StatusOr<v1::GetJobReply> ControlLoop::GetJob() const {
  v1::GetJobReply reply;
  *reply.mutable_job() = run().job;
  reply.set_run_id(run().run_id);
  reply.set_protocol_version(kProtocolVersion);
  reply.set_build(BuildVersion());
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (servers_.server(s).address.empty()) {
      if (master_->phase() == v1::JobStatus::FAILED)
        return absl::FailedPreconditionError(DescribeEnd(*master_));
      return absl::UnavailableError(
          absl::StrCat("server ", s, " of ", servers_.size(), " has not registered yet"));
    }
    reply.add_servers(servers_.server(s).address);
  }
  return reply;
}

absl::StatusOr<v1::RegisterServerReply> ControlLoop::RegisterServer(
    const v1::RegisterServerRequest& request) {
  v1::RegisterServerReply ended;
  ended.set_run_id(run().run_id);
  if (!request.failure().empty() && !request.leaving()) {
    servers_.NoteFailure(request);
    return ended;
  }
  if (servers_.HasEndedWithout(request)) {
    ended.set_ended(DescribeEnd(*master_));
    return ended;
  }
  if (absl::Status status = servers_.Check(request); !status.ok()) {
    NoteDecisions();
    return status;
  }
  if (request.leaving()) {
    Stop(absl::StrCat("server ", request.index(), " is shutting down", request.failure().empty() ? "" : ": ",
                      request.failure()),
         /*now=*/false);
  }
  v1::RegisterServerReply reply = servers_.Accept(request);
  NoteChange();
  return reply;
}

absl::Status ControlLoop::CheckWorker(const v1::RegisterRequest& request) const {
  const std::string worker = absl::StrCat("the worker (", request.host(), ":", request.pid(), ")");
  RETURN_IF_ERROR(CheckProtocolVersion(worker, request.protocol_version(), request.build(), "this master"));
  if (request.run_id() == run().run_id) return absl::OkStatus();
  return absl::AbortedError(absl::StrCat(worker, " has the job of run ", FormatId(request.run_id()),
                                         ", but this master started run ", FormatId(run().run_id),
                                         ": request the job again"));
}

absl::StatusOr<v1::RegisterReply> ControlLoop::Register(const v1::RegisterRequest& request,
                                                        const std::string& address) {
  RETURN_IF_ERROR(CheckWorker(request));
  absl::StatusOr<v1::RegisterReply> reply = master_->Register(request, address);
  if (reply.ok()) {
    history_.NoteLostVersion(request.version());
    reply->set_token(RegistrationToken(run().token_key, reply->incarnation()));
    if (request.role() == v1::WORKER && devices_.size() < kMaxDevices) devices_.insert(request.device());
  }
  history_.NoteEvaluators(master_->expected_evaluators());
  NoteChange();
  return reply;
}

absl::StatusOr<v1::HeartbeatReply> ControlLoop::Heartbeat(const v1::HeartbeatRequest& request) {
  absl::StatusOr<v1::HeartbeatReply> reply = master_->Heartbeat(request);
  NoteDecisions();
  return reply;
}

v1::LeaveReply ControlLoop::Leave(const v1::LeaveRequest& request) {
  v1::LeaveReply reply = master_->Leave(request);
  history_.NoteEvaluators(master_->expected_evaluators());
  NoteChange();
  return reply;
}

absl::StatusOr<v1::GetEvaluationReply> ControlLoop::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<v1::GetEvaluationReply> reply = master_->GetEvaluation(request);
  if (reply.ok() && reply->evaluation() > 0) NoteChange();
  NoteDecisions();
  return reply;
}

absl::StatusOr<v1::ReportEvaluationReply> ControlLoop::ReportEvaluation(const v1::EvaluationReport& report) {
  ASSIGN_OR_RETURN(v1::ReportEvaluationReply reply, master_->ReportEvaluation(report));
  if (!options_.writes_weights) reply.set_keep(false);
  // A late report, and one that is repeated, has no effect.
  if (report.evaluation() == master_->newest_evaluation() &&
      report.evaluation() != newest_report_.evaluation()) {
    newest_report_ = report;
  }
  scored_ = true;
  if (reply.keep()) best_report_ = report;
  evaluations_changed_ = true;
  NoteChange();
  return reply;
}

v1::JobStatus ControlLoop::Status() const {
  v1::JobStatus status = master_->Status();
  status.set_run_id(run().run_id);
  const bool waiting = status.phase() == v1::JobStatus::WAITING;
  if (waiting && !servers_.AllHere()) status.set_reason(servers_.DescribeMissing());
  if (history_.recovers_from() && waiting) {
    const std::string place = run().resumed_checkpoint == 0
                                  ? "the initial weights"
                                  : absl::StrCat("checkpoint ", run().resumed_checkpoint);
    status.set_reason(absl::StrCat(history_.recovers_from()->process, " was lost; going back to ", place,
                                   ": ", status.reason()));
  }
  status.set_recoveries(record().recoveries());
  status.set_updates_computed_again(record().updates_computed_again());
  status.set_insecure(run().insecure);
  status.set_writes_checkpoints(options_.can_go_back);
  for (size_t s = 0; s < servers_.size(); ++s) {
    v1::ServerStatus* const server = status.add_servers();
    server->set_address(servers_.server(s).address);
    if (s < options_.parameters.size()) server->set_parameters(options_.parameters[s]);
  }
  return status;
}

// No worker can register before all servers have: there is then nothing to save and no worker to wait for.
void ControlLoop::Stop(const std::string& reason, bool now) {
  stopped_before_start_ |= !servers_.AllHere();
  if (now) {
    master_->StopNow(reason);
  } else {
    master_->Stop(reason);
  }
  NoteDecisions();
}

// ------------------------------------------------------------------------------------------------ leases

absl::StatusOr<v1::Lease> ControlLoop::GetLease(const v1::GetLeaseRequest& request) {
  return Commit(master_->GetLease(request));
}

absl::StatusOr<v1::Lease> ControlLoop::Commit(absl::StatusOr<v1::Lease> lease) {
  const bool waits = lease.ok() && lease->state() == v1::Lease::WAIT && lease->save_state() == 0;
  if (lease.ok() && !waits) NoteChange();
  NoteDecisions();
  if (lease.ok()) lease->set_total_samples(master_->total_samples());
  return lease;
}

std::optional<LeaseWaiters::Answer> ControlLoop::AwaitLease(const v1::GetLeaseRequest& request,
                                                            LeaseWaiters::Respond respond) {
  const double seconds = std::min(request.wait_seconds(), master_->LongestLeaseWait());
  absl::StatusOr<v1::Lease> lease = GetLease(request);
  const bool waits = seconds > 0 && lease.ok() && lease->state() == v1::Lease::WAIT && !lease->flush() &&
                     lease->save_state() == 0 && !over() && master_->MayWaitForLease(request);
  if (!waits) return LeaseWaiters::Answer{std::move(respond), std::move(lease)};
  return waiters_.Add({request, clock_.Now() + seconds, *std::move(lease), std::move(respond)},
                      master_->lease_conditions());
}

LeaseWaiters::Ask ControlLoop::RetryLease() {
  return [this](const v1::GetLeaseRequest& request) { return Commit(master_->GetLeaseAgain(request)); };
}

}  // namespace catchment
