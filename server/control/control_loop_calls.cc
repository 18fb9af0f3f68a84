// The part of the control loop that answers calls.
#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/not_ready.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/wire/protocol.h"
#include "common/wire/token.h"
#include "server/control/control_loop.h"

namespace catchment {

// The owner adds what it knows.
template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kGetJob>(const v1::Call& call) {
  v1::GetJobReply reply;
  *reply.mutable_job() = run().job;
  reply.set_run_id(run().run_id);
  reply.set_protocol_version(kProtocolVersion);
  for (size_t s = 0; s < servers_.size(); ++s) {
    if (servers_.server(s).address.empty()) {
      if (master_->state_machine().phase() == v1::JobStatus::FAILED)
        return absl::FailedPreconditionError(DescribeEnd(*master_));
      return NotReady(absl::StrCat("server ", s, " of ", servers_.size(), " has not registered yet"));
    }
    reply.add_servers(servers_.server(s).address);
  }
  return MakeReply<v1::GetJobReply>(std::move(reply));
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kRegisterServer>(const v1::Call& call) {
  const v1::RegisterServerRequest& request = call.register_server();
  v1::Reply reply;
  reply.mutable_register_server()->set_run_id(run().run_id);
  reply.mutable_register_server()->set_master_time(clock_.Now());
  if (!request.failure().empty() && !request.leaving()) {
    servers_.NoteFailure(request);
    return reply;
  }
  if (servers_.HasEndedWithout(request)) {
    reply.mutable_register_server()->set_ended(DescribeEnd(*master_));
    return reply;
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
  reply.mutable_register_server()->MergeFrom(servers_.Accept(request));
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

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kRegister>(const v1::Call& call) {
  const v1::RegisterRequest& request = call.register_();
  RETURN_IF_ERROR(CheckWorker(request));
  absl::StatusOr<v1::RegisterReply> reply = master_->Register(request, call.address());
  if (reply.ok()) {
    ++registered_;
    reply->set_master_time(clock_.Now());
    history_.NoteLostVersion(request.version());
    reply->set_token(RegistrationToken(run().token_key, reply->incarnation()));
    if (request.role() == v1::WORKER && devices_.size() < kMaxDevices) devices_.insert(request.device());
  }
  history_.NoteEvaluators(master_->members().expected_evaluators());
  NoteChange();
  return MakeReply(std::move(reply));
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kHeartbeat>(const v1::Call& call) {
  absl::StatusOr<v1::HeartbeatReply> reply = master_->Heartbeat(call.heartbeat());
  if (reply.ok()) reply->set_master_time(clock_.Now());
  NoteDecisions();
  return MakeReply(std::move(reply));
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kLeave>(const v1::Call& call) {
  v1::LeaveReply reply = master_->Leave(call.leave());
  history_.NoteEvaluators(master_->members().expected_evaluators());
  NoteChange();
  return MakeReply<v1::LeaveReply>(std::move(reply));
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kGetEvaluation>(const v1::Call& call) {
  absl::StatusOr<v1::GetEvaluationReply> reply = master_->GetEvaluation(call.get_evaluation());
  if (reply.ok() && reply->evaluation() > 0) NoteChange();
  NoteDecisions();
  return MakeReply(std::move(reply));
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kReportEvaluation>(const v1::Call& call) {
  const v1::EvaluationReport& report = call.report_evaluation();
  ASSIGN_OR_RETURN(v1::ReportEvaluationReply reply, master_->ReportEvaluation(report));
  if (!options_.writes_weights) reply.set_keep(false);
  // A late report, and one that is repeated, has no effect.
  if (report.evaluation() == master_->evaluation().newest() &&
      report.evaluation() != newest_report_.evaluation()) {
    newest_report_ = report;
  }
  scored_ = true;
  if (reply.keep()) best_report_ = report;
  evaluations_changed_ = true;
  NoteChange();
  return MakeReply<v1::ReportEvaluationReply>(reply);
}

// A part of the state is saved.
template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kSaveWorkerState>(const v1::Call&) {
  return MakeReply<v1::SaveWorkerStateReply>(v1::SaveWorkerStateReply());
}

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kGetStatus>(const v1::Call& call) {
  master_->Watch(call.get_status().again_in_seconds());
  return MakeReply<v1::JobStatus>(Status());
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

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kStop>(const v1::Call& call) {
  const v1::StopRequest& request = call.stop();
  if (request.run_id() != 0 && request.run_id() != run().run_id) {
    return absl::FailedPreconditionError(absl::StrCat(
        "the stop is meant for run ", FormatId(request.run_id()), ", but this is the master of run ",
        FormatId(run().run_id), ", job \"", run().job.name(), "\""));
  }
  Stop(request.reason().empty() ? "a stop was requested" : request.reason(), request.now());
  return MakeReply<v1::StopReply>(v1::StopReply());
}

// No worker can register before all servers have: there is then nothing to save and no worker to wait for.
void ControlLoop::Stop(const std::string& reason, bool now) {
  stopped_before_start_ |= !servers_.AllHere();
  master_->Stop(reason, now);
  NoteDecisions();
}

// ------------------------------------------------------------------------------------------------ leases

template <>
absl::StatusOr<v1::Reply> ControlLoop::ReplyTo<v1::Call::kGetLease>(const v1::Call& call) {
  return MakeReply(Commit(master_->GetLease(call.get_lease())));
}

absl::StatusOr<v1::Lease> ControlLoop::Commit(absl::StatusOr<v1::Lease> lease) {
  const bool waits = lease.ok() && lease->state() == v1::Lease::WAIT && lease->save_state() == 0;
  if (lease.ok() && !waits) NoteChange();
  NoteDecisions();
  if (lease.ok()) lease->set_total_samples(master_->leases().total_samples());
  return lease;
}

bool ControlLoop::MayWait(const v1::GetLeaseRequest& request, const v1::Lease& lease) const {
  return request.wait_seconds() > 0 && lease.state() == v1::Lease::WAIT && !lease.flush() &&
         lease.save_state() == 0 && !over() && master_->leases().MayWait(request);
}

LeaseWaiters::Ask ControlLoop::RetryLease() {
  return [this](const v1::GetLeaseRequest& request) {
    return MakeReply(Commit(master_->GetLeaseAgain(request)));
  };
}

template <v1::Call::RequestCase... kRequests>
absl::StatusOr<v1::Reply> ControlLoop::ReplyToAny(const v1::Call& call) {
  absl::StatusOr<v1::Reply> reply = absl::UnimplementedError("the control loop does not answer this call");
  ((call.request_case() == kRequests ? void(reply = ReplyTo<kRequests>(call)) : void()), ...);
  return reply;
}

std::vector<ReadyReply> ControlLoop::Answer(const v1::Call& call, Respond respond) {
  using Call = v1::Call;
  absl::StatusOr<v1::Reply> reply =
      ReplyToAny<Call::kGetJob, Call::kRegisterServer, Call::kRegister, Call::kHeartbeat, Call::kGetLease,
                 Call::kLeave, Call::kGetEvaluation, Call::kReportEvaluation, Call::kSaveWorkerState,
                 Call::kGetStatus, Call::kStop>(call);
  std::vector<ReadyReply> ready;
  if (reply.ok() && reply->has_get_lease() && MayWait(call.get_lease(), reply->get_lease())) {
    const v1::GetLeaseRequest& request = call.get_lease();
    const double until =
        clock_.Now() + std::min(request.wait_seconds(), master_->members().LongestLeaseWait());
    std::optional<ReadyReply> older =
        waiters_.Add({request, until, *std::move(reply), std::move(respond)}, master_->leases().conditions());
    if (older) Release(*std::move(older), &ready);
    return ready;
  }
  ReadyReply answer{std::move(respond), std::move(reply)};
  const bool stops = answer.reply.ok() && answer.reply->heartbeat().stop();
  if (stops || RuleOf(call).waits_for_standby()) {
    Release(std::move(answer), &ready);
  } else {
    ready.push_back(std::move(answer));
  }
  return ready;
}

}  // namespace catchment
