// The part of the master that takes checkpoints: it announces them, and completes them when all shards and
// workers have saved their states.
#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/control/data_ledger.h"
#include "server/control/master.h"

namespace catchment {

void Master::AnnounceCheckpoint() {
  if (state_machine_.state() != JobStateMachine::State::kTraining || held_.has_value()) return;
  const bool announced = schedule_.Step({.now = clock_->Now(),
                                         .earlier = checkpoints_.earlier(),
                                         .version = shard_reports_.highest_version(),
                                         .granted = granted_,
                                         .reach = granted_ + VersionsPerPlan(),
                                         .failing = !shard_reports_.save_error().empty(),
                                         .draining = draining_,
                                         .at_rest = draining_ && IsAtRest()},
                                        rosters_.generation() + 1);
  if (!announced) return;
  ledger_->AwaitCheckpoint(true);
  rosters_.Renew();
  if (job_.checkpoint().worker_state()) BeginStates(schedule_.last());
}

void Master::BeginStates(const CheckpointSchedule::Announced& checkpoint) {
  std::map<uint64_t, uint32_t> workers;
  for (const Member* worker : membership_.workers()) {
    // In synchronous mode, a worker that has not got its lease yet also takes part in the updates before the
    // checkpoint.
    const bool trains = synchronous_ ? rosters_.Since(checkpoint.version - 1, worker->incarnation).has_value()
                                     : worker->granted_steps > 0;
    if (trains) workers[worker->incarnation] = worker->index;
  }
  states_.Begin(checkpoint.number, checkpoint.version, std::move(workers));
}

void Master::OnSavedByAll(const CheckpointTracker::Saved& saved) {
  // Ignores the checkpoint if another one has been announced in the meantime.
  if (!schedule_.Settle(saved.number) && saved.number != state_machine_.final_checkpoint()) return;
  held_ = saved;
  MaybeComplete();
}

void Master::MaybeComplete() {
  if (!held_.has_value() || !states_.IsComplete(held_->number)) return;
  const CheckpointTracker::Saved held = *std::exchange(held_, std::nullopt);
  Cut cut = CutOf(held);
  const std::vector<uint32_t> with_state = states_.Saved(held.number);
  if (!with_state.empty()) {
    cut.state_is_saved = [this](uint64_t incarnation) { return states_.IsSaved(incarnation); };
  }
  complete_.push_back({held.number, held.shards, StateAt(cut)});
  *complete_.back().state.mutable_worker_states() = {with_state.begin(), with_state.end()};
  for (v1::SavedShard& shard : complete_.back().shards) {
    shard.clear_incarnations();
    shard.clear_settled_steps();
    shard.clear_begun_steps();
  }
  if (ledger_ != nullptr) ledger_->AwaitCheckpoint(false);
}

absl::Status Master::CheckStateIsWanted(uint64_t incarnation, uint64_t number) const {
  if (states_.Awaits(incarnation, number)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", number, " does not wait for the state of incarnation ", incarnation));
}

absl::StatusOr<uint32_t> Master::IndexOf(uint64_t incarnation) const {
  for (const Member* worker : membership_.workers()) {
    if (worker->incarnation == incarnation) return worker->index;
  }
  return absl::NotFoundError(absl::StrCat("no worker of the job has incarnation ", incarnation));
}

void Master::OnStateSaved(uint64_t incarnation, uint64_t number, const absl::Status& status) {
  if (!states_.Awaits(incarnation, number)) return;
  if (status.ok()) {
    states_.SetSaved(incarnation);
  } else {
    AddOfMember(
        absl::StrCat("checkpoint ", number, " will not include the state of a worker: ", status.message()));
    states_.Remove(incarnation);
  }
  MaybeComplete();
  Advance();
}

void Master::OnCheckpointRecorded(uint64_t number, const absl::Status& status) {
  record_error_ = std::string(status.message());
  if (!status.ok()) return;
  checkpoints_.SetRecorded(number);
  std::erase_if(taken_, [number](const CompleteCheckpoint& one) { return one.number <= number; });
  events_.Add(absl::StrCat("checkpoint ", number, " is saved"));
  Advance();
}

std::string Master::SaveError() const {
  const std::string error = shard_reports_.save_error();
  return error.empty() ? record_error_ : error;
}

std::vector<CompleteCheckpoint> Master::TakeCompleteCheckpoints() {
  taken_.insert(taken_.end(), complete_.begin(), complete_.end());
  return std::exchange(complete_, {});
}

v1::MasterState Master::StateAt(const Cut& cut) const {
  v1::MasterState state;
  if (ledger_ != nullptr) state = ledger_->StateAt(cut);
  state.set_train_samples(train_samples_);  // of which an epoch may have left some out
  state.set_class_names(class_names_);
  state.set_repeated_samples(state.repeated_samples() + repeated_samples_);
  state.set_next_incarnation(membership_.next_incarnation());
  state.set_wall_seconds(state_machine_.trained_seconds(clock_->Now()));
  state.set_next_evaluation(evaluations_.next());
  if (plateau_) *state.mutable_plateau() = plateau_->state();
  *state.mutable_best() = early_stopping_.state();
  *state.mutable_last_score() = early_stopping_.last_score();
  return state;
}

bool Master::IsAtRest() const {
  if (synchronous_) return true;
  const std::vector<const Member*> workers = membership_.workers();
  return std::all_of(workers.begin(), workers.end(),
                     [this](const Member* worker) { return HasPushedAll(*worker); });
}

bool Master::Drains() const {
  if (!draining_ || membership_.num_workers() == 0 || !SaveError().empty()) return false;
  const CheckpointSchedule::Announced& last = schedule_.last();
  const bool announced = synchronous_ ? granted_ <= last.version : last.at_rest;
  return !announced || checkpoints_.recorded() < last.number;
}

}  // namespace catchment
