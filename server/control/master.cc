#include "server/control/master.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

// The shortest time for which the final evaluation waits for an evaluator that was lost: it pauses for up to
// 5 seconds between two calls.
constexpr double kEvaluatorSeconds = 10;
// The interval at which a worker that has left asks whether the last checkpoint is recorded.
constexpr double kStaySeconds = 0.1;

v1::Job WithoutModel(v1::Job job) {
  job.clear_model();
  return job;
}

std::vector<Member> Copies(const std::vector<const Member*>& members) {
  std::vector<Member> copies;
  for (const Member* member : members) copies.push_back(*member);
  return copies;
}

// Returns why training has diverged; empty if it has not. `limit`: faults.non_finite_limit.
std::string DescribeNonFinite(const v1::ShardReport& report, uint64_t limit) {
  if (report.non_finite_version() > 0) {
    return absl::StrCat("server ", report.shard(), " has had a NaN or infinite weight since update ",
                        report.non_finite_version(), ": ", kTrainingHasDiverged,
                        "; lower optimizer.learning_rate, raise optimizer.schedule.warmup, or "
                        "set optimizer.clip_norm, and resume from the last checkpoint with --resume");
  }
  for (const v1::WorkerStatistics& worker : report.workers()) {
    if (limit == 0 || worker.non_finite_in_a_row() < limit) continue;
    return absl::StrCat("worker ", worker.worker(), " sent ", worker.non_finite_in_a_row(),
                        " contributions in a row with a NaN or an infinity: ", kTrainingHasDiverged,
                        "; lower optimizer.learning_rate, or raise optimizer.schedule.warmup");
  }
  return "";
}

}  // namespace

absl::StatusOr<std::unique_ptr<Master>> Master::Create(v1::Job job, std::vector<TensorSpec> tensors,
                                                       int num_shards, const Clock* clock,
                                                       const std::optional<v1::MasterState>& resumed) {
  const v1::MasterState from = resumed.value_or(v1::MasterState());
  RETURN_IF_ERROR(CheckMasterState(from));
  return std::unique_ptr<Master>(new Master(std::move(job), std::move(tensors), num_shards, clock, from));
}

Master::Master(v1::Job job, std::vector<TensorSpec> tensors, int num_shards, const Clock* clock,
               const v1::MasterState& from)
    : job_(std::move(job)),
      settings_(WithoutModel(job_)),
      tensors_(std::move(tensors)),
      clock_(clock),
      from_(from),
      events_(job_.workers()),
      state_machine_(static_cast<int>(job_.workers()), from.wall_seconds()),
      reports_(num_shards),
      members_(job_, tensors_, from_, &events_, clock_),
      checkpoints_(job_, num_shards, from.version()),
      leases_(job_, num_shards, from_, state_machine_, members_, checkpoints_, reports_, &events_),
      evaluation_(job_, tensors_, from_, &members_, &events_, clock_) {
  if (from.train_samples() > 0) leases_.Open(from.train_samples());
  if (!evaluation_.enough().empty()) state_machine_.EndEarly(evaluation_.enough());
}

// ------------------------------------------------------------------------------------------------- image

v1::MasterImage Master::Save() const {
  v1::MasterImage image;
  members_.Save(&image);
  leases_.Save(&image);
  *image.mutable_state_machine() = state_machine_.Save(clock_->Now());
  checkpoints_.Save(clock_->Now(), &image);
  evaluation_.Save(&image);
  return image;
}

std::unique_ptr<Master> Master::Restore(v1::Job job, std::vector<TensorSpec> tensors, int num_shards,
                                        const Clock* clock, const v1::MasterImage& image,
                                        uint64_t next_incarnation) {
  std::unique_ptr<Master> master(
      new Master(std::move(job), std::move(tensors), num_shards, clock, v1::MasterState()));
  master->members_.Restore(image, next_incarnation);
  master->leases_.Restore(image, clock->Now());
  master->state_machine_.Restore(image.state_machine(), clock->Now());
  master->checkpoints_.Restore(image, clock->Now());
  master->evaluation_.Restore(image);
  return master;
}

Master::Decisions Master::decisions() const {
  return {.state = state_machine_.state(),
          .generation = leases_.generation(),
          .checkpoint = std::max(checkpoints_.last().number, state_machine_.final_checkpoint()),
          .complete = checkpoints_.num_complete(),
          .states_for = checkpoints_.states_for(),
          .stop_requested = state_machine_.stop_requested(),
          .plateau_factor = evaluation_.plateau_factor().value_or(1)};
}

v1::MasterState Master::StateAt(const Cut& cut) const {
  v1::MasterState state = leases_.StateAt(cut);
  members_.Fill(&state);
  state.set_wall_seconds(state_machine_.trained_seconds(clock_->Now()));
  evaluation_.Fill(&state);
  return state;
}

// --------------------------------------------------------------------------------------- calls of members

absl::StatusOr<v1::RegisterReply> Master::Register(const v1::RegisterRequest& request,
                                                   const std::string& address) {
  if (state_machine_.phase() == v1::JobStatus::FAILED) {
    return absl::FailedPreconditionError(absl::StrCat("the job has failed: ", state_machine_.reason()));
  }
  const std::string& origin = address.empty() ? request.host() : address;
  const bool data_is_open = leases_.DataIsOpen();
  RETURN_IF_ERROR(members_.Check(request, origin));
  ASSIGN_OR_RETURN(const std::string outnumbered, members_.CheckAgrees(request, origin, data_is_open));
  if (!outnumbered.empty()) {
    for (const Member& worker : Copies(members_.all().workers())) Release(worker, outnumbered);
  }
  const bool works = request.role() == v1::WORKER;
  const bool has_other_samples = works && request.train_samples() != members_.train_samples();
  const bool joins_late = state_machine_.state() == JobStateMachine::State::kTraining;
  const Member& member = *members_.Register(request, address, data_is_open, joins_late);
  if (has_other_samples) leases_.Open(request.train_samples());
  if (works && state_machine_.open()) leases_.Join(member);
  v1::RegisterReply reply;
  reply.set_worker(member.index);
  reply.set_incarnation(member.incarnation);
  reply.set_heartbeat_timeout_seconds(job_.faults().heartbeat_timeout_seconds());
  reply.set_restore_state(
      works && !state_machine_.begun() &&
      std::count(from_.worker_states().begin(), from_.worker_states().end(), member.index) > 0);
  Advance();
  return reply;
}

absl::StatusOr<v1::HeartbeatReply> Master::Heartbeat(const v1::HeartbeatRequest& request) {
  ASSIGN_OR_RETURN(Member* const member,
                   members_.Renew(request.role(), request.worker(), request.incarnation()));
  RETURN_IF_ERROR(members_.progress().Observe(request.progress(), member));
  Advance();
  v1::HeartbeatReply reply;
  reply.set_again_in_seconds(members_.Spread(JobMembers::kHeartbeatSeconds));
  if (!state_machine_.cut_short()) return reply;
  reply.set_stop(true);
  reply.set_reason(state_machine_.reason());
  return reply;
}

absl::StatusOr<v1::Lease> Master::GetLease(const v1::GetLeaseRequest& request) {
  ASSIGN_OR_RETURN(Member* const worker, members_.Renew(v1::WORKER, request.worker(), request.incarnation()));
  RETURN_IF_ERROR(members_.progress().Observe(request.progress(), worker));
  Advance();
  return leases_.LeaseFor(request, worker);
}

absl::StatusOr<v1::Lease> Master::GetLeaseAgain(const v1::GetLeaseRequest& request) {
  ASSIGN_OR_RETURN(Member* const worker, members_.FindWorker(request.worker(), request.incarnation()));
  return leases_.LeaseFor(request, worker);
}

v1::LeaveReply Master::Leave(const v1::LeaveRequest& request) {
  if (const std::optional<JobMembers::Left> left = members_.Leave(request)) {
    if (left->member.role == v1::WORKER) {
      Release(left->member);
      if (request.failed() && state_machine_.open() && members_.num_workers() == 0) {
        state_machine_.FailAfterSaving(absl::StrCat("no worker is left, and the last one, ",
                                                    left->member.name(), ", failed: ", left->reason),
                                       clock_->Now());
        OnStateEntered();
      }
    }
    Advance();
  }
  v1::LeaveReply reply;
  const bool failed = state_machine_.phase() == v1::JobStatus::FAILED;
  if (failed) reply.set_job_failed(state_machine_.reason());
  const bool must_stay =
      state_machine_.awaits_last_checkpoint() ||
      (job_.model().has_external() && !failed && members_.StaysUnaware(request.incarnation()));
  if (request.stays() && must_stay) {
    const bool final = state_machine_.weights_are_final();
    members_.Stay(request.incarnation(), final);
    reply.set_weights_are_final(final);
    reply.set_again_in_seconds(members_.Spread(kStaySeconds));
  } else if (members_.EndStay(request.incarnation())) {
    Advance();
  }
  return reply;
}

void Master::OnStateSaved(uint64_t incarnation, uint64_t number, const absl::Status& status) {
  if (!checkpoints_.CheckStateIsWanted(incarnation, number).ok()) return;
  if (status.ok()) {
    checkpoints_.SetStateSaved(incarnation);
  } else {
    events_.AddOfMember(
        absl::StrCat("checkpoint ", number, " will not include the state of a worker: ", status.message()),
        clock_->Now());
    checkpoints_.RemoveState(incarnation);
  }
  MaybeComplete();
  Advance();
}

absl::StatusOr<v1::GetEvaluationReply> Master::GetEvaluation(const v1::GetEvaluationRequest& request) {
  absl::StatusOr<Member*> evaluator = members_.RenewEvaluator(request.incarnation());
  Advance();
  if (state_machine_.ended()) {
    v1::GetEvaluationReply over;
    over.set_stop(true);
    return over;
  }
  RETURN_IF_ERROR(evaluator.status());
  // Another evaluation now would score the weights that the final one will score, or nearly so.
  const bool soon_final = state_machine_.awaits_last_checkpoint() && !state_machine_.stop_requested();
  const Evaluations::Moment now = {leases_.done_samples(), state_machine_.trained_seconds(clock_->Now())};
  return evaluation_.Next(soon_final ? std::nullopt : std::optional(now), *evaluator);
}

absl::StatusOr<v1::ReportEvaluationReply> Master::ReportEvaluation(const v1::EvaluationReport& report) {
  ASSIGN_OR_RETURN(Member* const evaluator, members_.RenewEvaluator(report.incarnation()));
  ASSIGN_OR_RETURN(v1::ReportEvaluationReply reply, evaluation_.Report(report, evaluator));
  const std::string& enough = evaluation_.enough();
  if (!enough.empty()) state_machine_.EndEarly(absl::StrCat(enough, ", as ", evaluator->name(), " reports"));
  Advance();
  return reply;
}

void Master::OnBestKept(uint64_t evaluation, const absl::Status& status) {
  evaluation_.OnBestKept(evaluation, status);
  Advance();
}

void Master::Watch(double seconds) {
  if (!state_machine_.ended()) watched_until_ = std::max(watched_until_, clock_->Now() + seconds);
}

v1::JobStatus Master::Status() const {
  v1::JobStatus status;
  status.set_job(job_.name());
  *status.mutable_settings() = settings_;
  status.set_has_accuracy(HasClasses(job_.data()));
  status.set_phase(state_machine_.phase());
  status.set_reason(state_machine_.reason());
  const std::string save_error = checkpoints_.SaveError(reports_);
  if (status.phase() == v1::JobStatus::TRAINING && !save_error.empty()) {
    status.set_reason(absl::StrCat("a checkpoint could not be saved: ", save_error));
  }
  if (status.phase() != v1::JobStatus::FAILED) status.set_ended_early(state_machine_.ended_early());
  status.set_wall_seconds(state_machine_.trained_seconds(clock_->Now()));
  status.set_last_checkpoint(checkpoints_.recorded());
  leases_.Fill(&status);
  members_.Fill(&status);
  evaluation_.Fill(&status);
  reports_.Fill(&status);
  status.mutable_events()->Add(events_.last().begin(), events_.last().end());
  return status;
}

// ----------------------------------------------------------------------------------------------- shards

absl::Status Master::OnShardReport(const v1::ShardReport& report) {
  if (absl::Status status = reports_.Update(report); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) {
      Fail(absl::StrCat(status.message(), "; start all servers again with --resume"));
    }
    return status;
  }
  const std::vector<PushMarks::Change> changes = leases_.Update(report);
  for (const v1::PushMark& mark : report.marks()) {
    if (const std::optional<Member> worker = members_.FindOverstated(mark, report.shard())) Release(*worker);
  }
  members_.FreeIndices(leases_.MarkDone(changes));
  leases_.NoteIfOverstated(report);
  members_.TakeDisconnected(report);
  for (CheckpointTracker::Saved& saved : checkpoints_.Observe(report)) {
    if (checkpoints_.Hold(std::move(saved), state_machine_.final_checkpoint())) MaybeComplete();
  }
  leases_.ForgetPassed();
  const std::string diverged = DescribeNonFinite(report, job_.faults().non_finite_limit());
  if (!diverged.empty()) Fail(diverged);
  Advance();
  return absl::OkStatus();
}

void Master::OnServerReplaced(uint32_t index, const std::string& address) {
  reports_.Forget(index);
  leases_.ForgetMarks(index);
  events_.Add(absl::StrCat("server ", index, " at ", address, " was restarted before training began"));
}

v1::ShardCommand Master::Command(bool rosters) const {
  v1::ShardCommand command;
  leases_.Fill(rosters, &command);
  if (const auto factor = evaluation_.plateau_factor()) command.set_plateau_factor(*factor);
  if (job_.algorithm().consistency().has_quorum())
    command.set_step_seconds(members_.progress().FastestStepSeconds());
  if (state_machine_.final_checkpoint() > 0) {
    command.set_checkpoint(state_machine_.final_checkpoint());
  } else {
    command.set_checkpoint(checkpoints_.last().number);
    command.set_checkpoint_version(checkpoints_.last().version);
  }
  command.set_stop(state_machine_.over());
  if (state_machine_.phase() == v1::JobStatus::FAILED) command.set_failure(state_machine_.reason());
  command.set_training(state_machine_.training());
  return command;
}

void Master::OnCheckpointRecorded(uint64_t number, const absl::Status& status) {
  checkpoints_.OnRecorded(number, status);
  if (!status.ok()) return;
  events_.Add(absl::StrCat("checkpoint ", number, " is saved"), JobEvent::kCheckpoint);
  Advance();
}

void Master::MaybeComplete() {
  const std::optional<Cut> cut = checkpoints_.CutToComplete();
  if (!cut) return;
  checkpoints_.Complete(StateAt(*cut));
  leases_.AwaitCheckpoint(false);
}

void Master::Release(const Member& worker, absl::string_view why) {
  if (!why.empty())
    events_.AddOfMember(absl::StrCat(worker.name(), " ", why, ": considered lost"), clock_->Now());
  members_.Remove(worker);
  checkpoints_.RemoveState(worker.incarnation);
  MaybeComplete();
  members_.FreeIndices(leases_.Release(worker));
}

// ------------------------------------------------------------------------------------------ job states

void Master::Stop(const std::string& reason, bool now) {
  if (!now) {
    state_machine_.RequestStop(OneLine(reason));
    if (job_.checkpoint().worker_state() && state_machine_.state() == JobStateMachine::State::kTraining) {
      checkpoints_.Drain();
      leases_.Close();
    }
    Advance();
  } else if (!state_machine_.ended()) {
    state_machine_.StopNow(OneLine(reason), clock_->Now());
    OnStateEntered();
  }
}

void Master::Fail(const std::string& reason) {
  if (state_machine_.ended()) return;
  state_machine_.Fail(reason, clock_->Now());
  OnStateEntered();
}

void Master::ExpectWorkers(int workers, double seconds) {
  state_machine_.ExpectWorkers(workers, clock_->Now() + seconds);
}

void Master::OnOutputsWritten() {
  if (!state_machine_.ended()) return;
  state_machine_.OutputsWritten();
  Advance();
}

void Master::Tick() {
  const double now = clock_->Now();
  JobProgress& progress = members_.progress();
  events_.Tick(now);
  for (const Member& member : members_.TakeExpired()) {
    if (member.role != v1::WORKER) {
      members_.Remove(member);
      continue;
    }
    if (state_machine_.begun() && !leases_.IsOnProbation(member)) progress.BarIfAwaited(member);
    Release(member);
  }
  if (state_machine_.overdue(now, progress.LeavePatience())) {
    for (const Member& worker : Copies(members_.all().workers())) Release(worker, "did not leave in time");
  }
  if (progress.IsDue()) {
    if (leases_.is_open()) {
      const auto work_of = [this](const Member& worker) { return leases_.WorkOf(worker); };
      for (const Member& worker : progress.FindStuck(members_.all().workers(), work_of)) {
        progress.NoteStuck(worker);
        Release(worker);
      }
    }
    const auto work_of = [this](const Member& evaluator) { return evaluation_.WorkOf(evaluator); };
    for (const Member& evaluator : progress.FindStuck(members_.all().evaluators(), work_of)) {
      progress.NoteStuck(evaluator);
      members_.Remove(evaluator);
    }
  }
  Advance();
}

void Master::Advance() {
  if (leases_.is_open()) evaluation_.Observe(leases_.done_epochs());
  while (state_machine_.Step(GatherFacts(), clock_->Now())) OnStateEntered();
  if (state_machine_.state() != JobStateMachine::State::kTraining) return;
  if (!checkpoints_.Announce(leases_.CheckpointFacts(clock_->Now()), leases_.generation() + 1)) return;
  leases_.AwaitCheckpoint(true);
  if (job_.checkpoint().worker_state()) checkpoints_.BeginStates(leases_.Participants());
}

JobStateMachine::Facts Master::GatherFacts() const {
  JobStateMachine::Facts facts;
  facts.workers = members_.num_workers();
  facts.evaluators = members_.all().num_evaluators();
  facts.expected_evaluators = members_.expected_evaluators();
  facts.evaluator_patience = std::max(job_.faults().heartbeat_timeout_seconds(), kEvaluatorSeconds);
  facts.budget_done = leases_.AllDone();
  facts.save_error = checkpoints_.SaveError(reports_);
  facts.drains = facts.workers > 0 && facts.save_error.empty() && checkpoints_.Drains(leases_.granted());
  facts.settled = reports_.all_reported() && reports_.lowest_generation() >= leases_.generation();
  facts.highest_version = reports_.highest_version();
  facts.bytes_pushed = reports_.bytes_pushed();
  facts.earlier_checkpoint = checkpoints_.earlier();
  facts.used_checkpoint = checkpoints_.UsedNumber(reports_.highest_version());
  facts.saved = checkpoints_.IsRecorded(state_machine_.final_checkpoint());
  facts.evaluated = evaluation_.final_done() && !members_.all().HasEvaluator(evaluation_.best_awaited_from());
  facts.watched = clock_->Now() < watched_until_;
  facts.staying = members_.num_staying();
  return facts;
}

void Master::OnStateEntered() {
  switch (state_machine_.state()) {
    case JobStateMachine::State::kWaiting:
      events_.AddOfMember(state_machine_.reason(), clock_->Now());
      break;
    case JobStateMachine::State::kTraining:
      members_.progress().Restart();
      events_.AddOfMember(absl::StrCat("training with ", members_.num_workers(), " workers"), clock_->Now());
      break;
    case JobStateMachine::State::kLeaving:
      events_.Add(state_machine_.cut_short() ? state_machine_.reason() : "the budget is spent");
      break;
    case JobStateMachine::State::kEvaluating:
      evaluation_.DemandFinal();
      break;
    case JobStateMachine::State::kEnded:
      events_.Add(absl::StrCat("the job has ended: ", v1::JobStatus::Phase_Name(state_machine_.phase()),
                               state_machine_.reason().empty() ? "" : ", ", state_machine_.reason()));
      break;
    case JobStateMachine::State::kSaving:
      leases_.RenewGeneration();
      break;
    case JobStateMachine::State::kSettling:
    case JobStateMachine::State::kOver:
      break;
  }
}

}  // namespace catchment
