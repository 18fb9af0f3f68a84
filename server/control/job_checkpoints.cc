#include "server/control/job_checkpoints.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

template <typename Checkpoint>  // CompleteCheckpoint or CheckpointTracker::Saved
void SaveShards(const Checkpoint& checkpoint, v1::CheckpointImage* image) {
  image->set_number(checkpoint.number);
  *image->mutable_shards() = {checkpoint.shards.begin(), checkpoint.shards.end()};
}

std::vector<v1::SavedShard> ShardsOf(const v1::CheckpointImage& image) {
  return {image.shards().begin(), image.shards().end()};
}

}  // namespace

JobCheckpoints::JobCheckpoints(const v1::Job& job, int num_shards, uint64_t first_version)
    : synchronous_(PaceOf(job).synchronous),
      schedule_(job.checkpoint(), synchronous_, first_version, Overlaps(job)),
      tracker_(num_shards) {}

bool JobCheckpoints::Announce(CheckpointSchedule::Facts facts, uint64_t generation) {
  facts.earlier = earlier();
  facts.draining = draining_;
  return !holds() && schedule_.Step(facts, generation);
}

void JobCheckpoints::BeginStates(std::map<uint64_t, uint32_t> workers) {
  states_.Begin(last().number, last().version, std::move(workers));
}

bool JobCheckpoints::Drains(uint64_t granted) const {
  const bool announced = synchronous_ ? granted <= last().version : last().at_rest;
  return draining_ && (!announced || recorded() < last().number);
}

bool JobCheckpoints::Hold(CheckpointTracker::Saved saved, uint64_t final_number) {
  if (!schedule_.Settle(saved.number) && saved.number != final_number) return false;
  held_ = std::move(saved);
  return true;
}

std::optional<Cut> JobCheckpoints::CutToComplete() const {
  if (!holds() || !states_.IsComplete(held_->number)) return std::nullopt;
  Cut cut = CutOf(*held_);
  if (!states_.Saved(held_->number).empty()) {
    cut.state_is_saved = [this](uint64_t incarnation) { return states_.IsSaved(incarnation); };
  }
  return cut;
}

void JobCheckpoints::Complete(v1::MasterState state) {
  CheckpointTracker::Saved held = *std::exchange(held_, std::nullopt);
  const std::vector<uint32_t> with_state = states_.Saved(held.number);
  *state.mutable_worker_states() = {with_state.begin(), with_state.end()};
  for (v1::SavedShard& shard : held.shards) {
    shard.clear_incarnations();
    shard.clear_settled_steps();
    shard.clear_begun_steps();
  }
  complete_.push_back({held.number, std::move(held.shards), std::move(state)});
}

absl::Status JobCheckpoints::CheckStateIsWanted(uint64_t incarnation, uint64_t number) const {
  if (states_.Awaits(incarnation, number)) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("checkpoint ", number, " does not wait for the state of incarnation ", incarnation));
}

std::optional<uint64_t> JobCheckpoints::SavedBefore(uint64_t incarnation) const {
  if (!states_.Awaits(incarnation, states_.number())) return std::nullopt;
  return states_.num_saved();
}

std::vector<CompleteCheckpoint> JobCheckpoints::TakeComplete() {
  taken_.insert(taken_.end(), complete_.begin(), complete_.end());
  return std::exchange(complete_, {});
}

void JobCheckpoints::OnRecorded(uint64_t number, const absl::Status& status) {
  record_error_ = std::string(status.message());
  if (!status.ok()) return;
  tracker_.SetRecorded(number);
  std::erase_if(taken_, [number](const CompleteCheckpoint& one) { return one.number <= number; });
}

std::string JobCheckpoints::SaveError(const ShardReports& reports) const {
  const std::string error = reports.save_error();
  return error.empty() ? record_error_ : error;
}

void JobCheckpoints::Save(double now, v1::MasterImage* image) const {
  *image->mutable_schedule() = schedule_.Save(now);
  *image->mutable_checkpoints() = tracker_.Save();
  *image->mutable_states() = states_.Save();
  if (held_) SaveShards(*held_, image->mutable_held());
  image->set_draining(draining_);
  for (const auto* const list : {&taken_, &complete_}) {
    for (const CompleteCheckpoint& one : *list) {
      v1::CheckpointImage* const added = image->add_complete();
      SaveShards(one, added);
      *added->mutable_state() = one.state;
    }
  }
}

void JobCheckpoints::Restore(const v1::MasterImage& image, double now) {
  schedule_.Restore(image.schedule(), now);
  tracker_.Restore(image.checkpoints());
  states_.Restore(image.states());
  if (image.has_held()) held_ = {image.held().number(), ShardsOf(image.held())};
  draining_ = image.draining();
  for (const v1::CheckpointImage& one : image.complete())
    complete_.push_back({one.number(), ShardsOf(one), one.state()});
}

}  // namespace catchment
