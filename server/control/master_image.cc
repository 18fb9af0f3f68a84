// The part of the master that saves its state for its standby and restores it.
#include <utility>

#include "server/control/master.h"

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

Master::Decisions Master::decisions() const {
  return {.state = state_machine_.state(),
          .generation = rosters_.generation(),
          .checkpoint = std::max(schedule_.last().number, state_machine_.final_checkpoint()),
          .complete = complete_.size() + taken_.size(),
          .states_for = states_.number(),
          .stop_requested = state_machine_.stop_requested(),
          .plateau_factor = plateau_ ? plateau_->factor() : 1};
}

v1::MasterImage Master::Save() const {
  const double now = clock_->Now();
  v1::MasterImage image;
  *image.mutable_membership() = membership_.Save();
  *image.mutable_rosters() = rosters_.Save();
  image.set_train_samples(train_samples_);
  image.set_class_names(class_names_);
  ledger_->Save(&image);
  *image.mutable_state_machine() = state_machine_.Save(now);
  *image.mutable_schedule() = schedule_.Save(now);
  image.set_granted(granted_);
  *image.mutable_checkpoints() = checkpoints_.Save();
  *image.mutable_states() = states_.Save();
  if (held_) SaveShards(*held_, image.mutable_held());
  image.set_draining(draining_);
  for (const auto* const list : {&taken_, &complete_}) {
    for (const CompleteCheckpoint& one : *list) {
      v1::CheckpointImage* const added = image.add_complete();
      SaveShards(one, added);
      *added->mutable_state() = one.state;
    }
  }
  *image.mutable_evaluations() = evaluations_.Save();
  if (plateau_) *image.mutable_plateau() = plateau_->state();
  *image.mutable_best() = early_stopping_.state();
  *image.mutable_last_score() = early_stopping_.last_score();
  image.set_enough(early_stopping_.enough());
  image.set_best_wanted(best_wanted_.evaluation());
  image.set_best_awaited_from(best_awaited_from_);
  *image.mutable_work() = work_.Save();
  for (const Leaving& leaving : leaving_) {
    v1::LeavingImage* const added = image.add_leaving();
    *added->mutable_worker() = leaving.worker.Save();
    added->set_generation(leaving.generation);
  }
  image.set_repeated_samples(repeated_samples_);
  for (const auto& [incarnation, knows] : staying_) image.add_staying(incarnation);
  *image.mutable_times_stuck() = {watch_.times_stuck().begin(), watch_.times_stuck().end()};
  return image;
}

std::unique_ptr<Master> Master::Restore(v1::Job job, std::vector<TensorSpec> tensors, int num_shards,
                                        const Clock* clock, const v1::MasterImage& image,
                                        uint64_t next_incarnation) {
  std::unique_ptr<Master> master(
      new Master(std::move(job), std::move(tensors), num_shards, clock, v1::MasterState()));
  const double now = clock->Now();
  v1::MembershipImage membership = image.membership();
  membership.set_next_incarnation(std::max(membership.next_incarnation(), next_incarnation));
  master->membership_.Restore(membership, now);
  master->rosters_.Restore(image.rosters());
  master->OpenLedger(image.train_samples());
  master->class_names_ = image.class_names();
  master->assigned_ = true;  // as far as the image says
  master->ledger_->Restore(image);
  master->state_machine_.Restore(image.state_machine(), now);
  master->expected_evaluators_ = master->membership_.num_evaluators();
  master->schedule_.Restore(image.schedule(), now);
  master->granted_ = image.granted();
  master->checkpoints_.Restore(image.checkpoints());
  master->states_.Restore(image.states());
  if (image.has_held()) master->held_ = {image.held().number(), ShardsOf(image.held())};
  master->draining_ = image.draining();
  for (const v1::CheckpointImage& one : image.complete())
    master->complete_.push_back({one.number(), ShardsOf(one), one.state()});
  master->evaluations_.Restore(image.evaluations());
  if (master->plateau_) master->plateau_->Restore(image.plateau());
  master->early_stopping_.Restore(image.best(), image.last_score(), image.enough());
  // The weights that are wanted are those of the best evaluation, or of the last one.
  const bool last = image.best_wanted() == image.last_score().evaluation();
  if (image.best_wanted() > 0) master->best_wanted_ = last ? image.last_score() : image.best();
  master->best_wanted_.set_evaluation(image.best_wanted());
  master->best_awaited_from_ = image.best_awaited_from();
  master->work_.Restore(image.work());
  for (const v1::LeavingImage& one : image.leaving())
    master->leaving_.push_back({Member::Restore(one.worker(), now), one.generation()});
  master->repeated_samples_ = image.repeated_samples();
  for (const uint64_t incarnation : image.staying()) master->staying_[incarnation] = false;
  master->watch_.Restore({image.times_stuck().begin(), image.times_stuck().end()});
  master->meter_.Restart(now);
  return master;
}

}  // namespace catchment
