#include "server/control/master.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "server/control/data_ledger.h"
#include "server/control/sample_source.h"

namespace catchment {
namespace {

v1::Job WithoutModel(v1::Job job) {
  job.clear_model();
  return job;
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
      pace_(PaceOf(job_)),
      synchronous_(pace_.synchronous),
      from_(from),
      events_(job_.workers()),
      membership_(job_.faults().heartbeat_timeout_seconds(), from.next_incarnation(), &events_,
                  NumGroups(job_.algorithm().consistency())),
      rosters_(synchronous_ ? from.version() : 0),
      state_machine_(static_cast<int>(job_.workers()), from.wall_seconds()),
      shard_reports_(num_shards),
      schedule_(job_.checkpoint(), synchronous_, from.version(), Overlaps(job_)),
      granted_(from.version()),
      checkpoints_(num_shards),
      evaluations_(job_.evaluation().every_epochs(), from.next_evaluation()),
      early_stopping_(job_.evaluation(), from.best(), from.last_score()),
      marks_(num_shards),
      watch_(job_.faults().stuck_seconds(), job_.faults().heartbeat_timeout_seconds()),
      repeated_samples_(from.repeated_samples()) {
  const v1::Schedule& schedule = job_.optimizer().schedule();
  if (schedule.decay() == v1::Schedule::PLATEAU) plateau_.emplace(schedule, from.plateau());
  if (from.train_samples() > 0) OpenLedger(from.train_samples());
  EndIfEnough("");
}

double Master::done_epochs() const {
  return static_cast<double>(ledger_->done_samples()) /
         static_cast<double>(SamplesPerEpoch(job_, train_samples_));
}

void Master::OpenLedger(uint64_t train_samples) {
  train_samples_ = train_samples;
  total_samples_ = BudgetOf(job_, train_samples).total_samples;
  ledger_ = MakeDataLedger(job_, train_samples, from_);
  // Workers that have left may have begun training, though none was assigned samples.
  if (schedule_.last().number > 0) ledger_->AwaitCheckpoint(true);
}

// ----------------------------------------------------------------------------------------------- shards

absl::Status Master::OnShardReport(const v1::ShardReport& report) {
  if (absl::Status status = shard_reports_.Update(report); !status.ok()) {
    if (absl::IsFailedPrecondition(status)) {
      Fail(absl::StrCat(status.message(), "; start all servers again with --resume"));
    }
    return status;
  }
  ApplyMarks(report);
  NoteIfOverstated(report);
  TakeDisconnected(report);
  for (const CheckpointTracker::Saved& saved : checkpoints_.Observe(report)) OnSavedByAll(saved);
  // Later checkpoints have versions that no shard has passed.
  if (ledger_ != nullptr && !held_.has_value()) {
    ledger_->Forget(schedule_.LowestNeeded(shard_reports_.lowest_version()));
  }
  CheckForNonFinite(report);
  Advance();
  return absl::OkStatus();
}

void Master::OnServerReplaced(uint32_t index, const std::string& address) {
  shard_reports_.Forget(index);
  marks_.Forget(index);
  events_.Add(absl::StrCat("server ", index, " at ", address, " was restarted before training began"));
}

void Master::CheckForNonFinite(const v1::ShardReport& report) {
  if (report.non_finite_version() > 0) {
    Fail(absl::StrCat("server ", report.shard(), " has had a NaN or infinite weight since update ",
                      report.non_finite_version(), ": ", kTrainingHasDiverged,
                      "; lower optimizer.learning_rate, raise optimizer.schedule.warmup, or "
                      "set optimizer.clip_norm, and resume from the last checkpoint with --resume"));
    return;
  }
  const uint64_t limit = job_.faults().non_finite_limit();
  if (limit == 0 || state_machine_.ended()) return;
  for (const v1::WorkerStatistics& worker : report.workers()) {
    if (worker.non_finite_in_a_row() < limit) continue;
    Fail(absl::StrCat("worker ", worker.worker(), " sent ", worker.non_finite_in_a_row(),
                      " contributions in a row with a NaN or an infinity: ", kTrainingHasDiverged,
                      "; lower optimizer.learning_rate, or raise optimizer.schedule.warmup"));
    return;
  }
}

v1::ShardCommand Master::Command(bool rosters) const {
  v1::ShardCommand command;
  command.set_generation(rosters_.generation());
  if (rosters) rosters_.Fill(&command);
  command.set_total_samples(total_samples_);
  if (overstated_) command.set_most_samples(MostSamples());
  if (plateau_) command.set_plateau_factor(plateau_->factor());
  if (job_.algorithm().consistency().has_quorum()) command.set_step_seconds(FastestStepSeconds());
  if (state_machine_.final_checkpoint() > 0) {
    command.set_checkpoint(state_machine_.final_checkpoint());
  } else {
    command.set_checkpoint(schedule_.last().number);
    command.set_checkpoint_version(schedule_.last().version);
  }
  command.set_stop(Over());
  if (phase() == v1::JobStatus::FAILED) command.set_failure(state_machine_.reason());
  command.set_training(training());
  return command;
}

// ------------------------------------------------------------------------------------------ job states

void Master::Stop(const std::string& reason) {
  state_machine_.RequestStop(OneLine(reason));
  if (job_.checkpoint().worker_state() && state_machine_.state() == JobStateMachine::State::kTraining) {
    draining_ = true;
    ledger_->Close();
  }
  Advance();
}

void Master::StopNow(const std::string& reason) {
  if (state_machine_.ended()) return;
  state_machine_.StopNow(OneLine(reason), clock_->Now());
  OnStateEntered();
}

void Master::Fail(const std::string& reason) {
  if (state_machine_.ended()) return;
  state_machine_.Fail(reason, clock_->Now());
  OnStateEntered();
}

void Master::OnOutputsWritten() {
  if (!state_machine_.ended()) return;
  state_machine_.OutputsWritten();
  Advance();
}

void Master::ExtendDeadlines(double seconds) {
  membership_.ExtendDeadlines(seconds, clock_->Now());
  watch_.Extend(seconds);
}

void Master::Tick() {
  const double now = clock_->Now();
  events_.Tick(now);
  for (const Member& member : membership_.TakeExpired(now)) {
    if (member.role == v1::WORKER) {
      BarIfAwaited(member);
      Release(member);
    }
    watch_.Forget(member.incarnation);
  }
  if (state_machine_.overdue(now, LeavePatience())) RemoveWorkers("did not leave in time");
  WatchProgress();
  Advance();
}

void Master::Advance() {
  if (ledger_ != nullptr) {
    evaluations_.Observe(done_epochs());
  }
  while (state_machine_.Step(GatherFacts(), clock_->Now())) OnStateEntered();
  AnnounceCheckpoint();
}

JobStateMachine::Facts Master::GatherFacts() const {
  JobStateMachine::Facts facts;
  facts.workers = membership_.num_workers();
  facts.evaluators = membership_.num_evaluators();
  facts.expected_evaluators = expected_evaluators_;
  facts.evaluator_patience = std::max(job_.faults().heartbeat_timeout_seconds(), kEvaluatorSeconds);
  facts.budget_done = ledger_ != nullptr && ledger_->AllDone();
  facts.drains = Drains();
  facts.settled =
      shard_reports_.all_reported() && shard_reports_.lowest_generation() >= rosters_.generation();
  facts.highest_version = shard_reports_.highest_version();
  facts.bytes_pushed = shard_reports_.bytes_pushed();
  facts.earlier_checkpoint = checkpoints_.earlier();
  facts.used_checkpoint = schedule_.UsedNumber(shard_reports_.highest_version());
  facts.saved = checkpoints_.AllSaved(state_machine_.final_checkpoint()) &&
                checkpoints_.recorded() >= state_machine_.final_checkpoint();
  facts.save_error = SaveError();
  facts.evaluated = evaluations_.final_done() && !membership_.HasEvaluator(best_awaited_from_);
  facts.watched = clock_->Now() < watched_until_;
  facts.staying = static_cast<int>(staying_.size());
  return facts;
}

void Master::OnStateEntered() {
  switch (state_machine_.state()) {
    case JobStateMachine::State::kWaiting:
      AddOfMember(state_machine_.reason());
      break;
    case JobStateMachine::State::kTraining:
      meter_.Restart(clock_->Now());
      AddOfMember(absl::StrCat("training with ", membership_.num_workers(), " workers"));
      break;
    case JobStateMachine::State::kLeaving:
      events_.Add(state_machine_.cut_short() ? state_machine_.reason() : "the budget is spent");
      break;
    case JobStateMachine::State::kEvaluating:
      evaluations_.DemandFinal();
      break;
    case JobStateMachine::State::kEnded:
      events_.Add(absl::StrCat("the job has ended: ", v1::JobStatus::Phase_Name(phase()),
                               state_machine_.reason().empty() ? "" : ", ", state_machine_.reason()));
      break;
    case JobStateMachine::State::kSaving:
      rosters_.Renew();
      break;
    case JobStateMachine::State::kSettling:
    case JobStateMachine::State::kOver:
      break;
  }
}

}  // namespace catchment
