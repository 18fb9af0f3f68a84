// The changes and images of a block, for the standby of its shard.
#include <algorithm>
#include <cstring>
#include <utility>

#include "server/shard/block.h"

namespace catchment {
namespace {

BufferPtr Copy(const float* values, int64_t size, BufferPool* pool) {
  BufferPtr copy = pool->Get(size);
  std::memcpy(copy->data(), values, copy->bytes());
  return copy;
}

BufferPtr Copy(const absl::Cord& values, BufferPool* pool) {
  BufferPtr copy = pool->GetBytes(static_cast<int64_t>(values.size()));
  CopyVector(values, copy->data());
  return copy;
}

v1::AcceptedContribution Describe(const WaitingContribution& waiting) {
  v1::AcceptedContribution accepted;
  accepted.set_worker(waiting.envelope.worker);
  accepted.set_incarnation(waiting.envelope.incarnation);
  accepted.set_sequence(waiting.envelope.sequence);
  accepted.set_steps(waiting.envelope.steps);
  accepted.set_version(waiting.contribution.version);
  accepted.set_samples(waiting.contribution.samples);
  return accepted;
}

}  // namespace

void Block::NoteSettled(const Envelope& envelope, v1::Block::Fate fate, uint64_t staleness,
                        const std::optional<Lag>& lag) {
  if (context_.log == nullptr) return;
  changes_.any = true;
  v1::Settlement& settlement = *changes_.change.add_settlements();
  settlement.set_worker(envelope.worker);
  settlement.set_incarnation(envelope.incarnation);
  settlement.set_sequence(envelope.sequence);
  settlement.set_steps(envelope.steps);
  settlement.set_fate(fate);
  settlement.set_staleness(staleness);
  if (!lag) return;
  settlement.set_has_lag(true);
  settlement.set_lag_seconds(lag->seconds);
  settlement.set_squared_gap(lag->squared_gap);
  settlement.set_gap_values(lag->gap_values);
}

void Block::NoteAccepted(const WaitingContribution& waiting) {
  if (context_.log == nullptr) return;
  NoteSettled(waiting.envelope, v1::Block::ACCEPTED, 0, std::nullopt);
  *changes_.change.add_accepted() = Describe(waiting);
  changes_.accepted.push_back(waiting.contribution.values);
}

void Block::Log(size_t first, BlockCall* call) {
  if (context_.log == nullptr) return;
  if (changes_.any) last_change_ = context_.log->Append(TakeChanges());
  for (size_t i = first; i < call->answers->size(); ++i) (*call->answers)[i].change = last_change_;
}

StandbyLog::Change Block::TakeChanges() {
  StandbyLog::Change taken;
  v1::BlockChange& change = *taken.part.mutable_block();
  change = std::move(changes_.change);
  FillState(&change);
  change.set_bytes_pushed(context_.bytes_pushed);
  change.set_bytes_pulled(context_.bytes_pulled);
  if (changes_.values) {
    // The step from the last version that the standby has seen has a learning rate since then.
    if (momentum_ != nullptr)
      momentum_->SavePoints(std::exchange(logged_version_, state_.version()),
                            change.mutable_momentum_points());
    change.set_has_values(true);
    taken.vectors.push_back(changes_.weights != nullptr ? std::move(changes_.weights) : CopyWeights());
    for (const std::vector<float>& state : context_.states)
      taken.vectors.push_back(Copy(state.data() + range_.begin, size(), &context_.pool));
  }
  for (BufferPtr& values : changes_.accepted) taken.vectors.push_back(std::move(values));
  for (Changes::SentWeights& sent : changes_.sent) {
    if (sent.version == state_.version()) {
      change.add_sent(sent.worker);
    } else {
      change.add_sent_before(sent.worker);
      taken.vectors.push_back(std::move(sent.weights));
    }
  }
  for (Changes::GroupUpdate& update : changes_.group_updates) {
    v1::GroupUpdate& added = *change.add_group_updates();
    added.set_group(update.group);
    added.set_contributions(update.contributions);
    // The weights before the first update are those before the change.
    if (change.group_updates_size() == 1) continue;
    added.set_has_weights(true);
    taken.vectors.push_back(std::move(update.before));
  }
  changes_ = Changes();
  return taken;
}

void Block::FillState(v1::BlockChange* change) const {
  change->set_block(index_);
  *change->mutable_state() = StateLocked();
  for (const Group& group : groups_) change->add_group_bases(group.base());
}

StandbyLog::Change Block::Image(const CommandedState& commanded) const {
  MutexLock lock(&mu_);
  StandbyLog::Change image;
  v1::BlockChange& whole = *image.part.mutable_block();
  FillState(&whole);
  whole.set_has_values(true);
  if (momentum_ != nullptr) momentum_->SavePoints(0, whole.mutable_momentum_points());
  // Contributions that were not answered are sent again.
  for (size_t i = 0; i < queue_.size(); ++i) {
    v1::AcceptedContribution& accepted = *whole.add_accepted();
    accepted = Describe(queue_[i]);
    image.vectors.push_back(queue_[i].contribution.values);
    if (queue_[i].sent.weights == nullptr) continue;
    accepted.set_has_sent(true);
    image.vectors.push_back(queue_[i].sent.weights);
  }
  if (context_.rule->needs_sent_weights()) {
    for (const auto& [index, worker] : commanded.workers) {
      MutexLock worker_lock(&worker->mu);
      const BufferPtr& weights = worker->sent[index_].weights;
      if (weights == nullptr) continue;
      whole.add_sent_before(index);
      image.vectors.push_back(weights);
    }
  }
  for (size_t worker = 0; worker < finished_.size(); ++worker) {
    if (finished_[worker].incarnation == 0) continue;
    v1::FinishedPush& finished = *whole.add_finished();
    finished.set_worker(static_cast<uint32_t>(worker));
    finished.set_incarnation(finished_[worker].incarnation);
    finished.set_sequence(finished_[worker].pushes);
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    const Group::LastUpdate& last = groups_[group].last();
    if (last.before == nullptr) continue;
    v1::GroupUpdate& update = *whole.add_group_updates();
    update.set_group(static_cast<uint32_t>(group));
    update.set_contributions(last.contributions);
    update.set_has_weights(true);
    image.vectors.push_back(last.before);
  }
  return image;
}

void Block::Restore(const BlockImage& image, const CommandedState& commanded) {
  MutexLock lock(&mu_);
  for (size_t group = 0; group < std::min(groups_.size(), image.group_bases.size()); ++group)
    groups_[group].set_base(image.group_bases[group]);
  for (const BlockImage::Accepted& accepted : image.accepted) {
    const v1::AcceptedContribution& from = accepted.contribution;
    WaitingContribution waiting;
    waiting.envelope = {.worker = from.worker(),
                        .incarnation = from.incarnation(),
                        .sequence = from.sequence(),
                        .steps = from.steps()};
    waiting.contribution = {.block = index_,
                            .version = from.version(),
                            .samples = from.samples(),
                            .values = Copy(accepted.values, &context_.pool)};
    if (!accepted.sent.empty()) waiting.sent.weights = Copy(accepted.sent, &context_.pool);
    queue_.Push(std::move(waiting));
  }
  for (const auto& [index, weights] : image.sent) {
    const auto worker = commanded.workers.find(index);
    if (worker == commanded.workers.end()) continue;
    MutexLock worker_lock(&worker->second->mu);
    worker->second->sent[index_].weights = Copy(weights, &context_.pool);
  }
  for (const auto& [index, finished] : image.finished) {
    if (finished_.size() <= index) finished_.resize(index + 1);
    finished_[index] = {finished.incarnation(), finished.sequence()};
  }
  for (const auto& [version, point] : image.momentum_points) {
    if (momentum_ != nullptr) momentum_->RestorePoint(point);
  }
  for (const auto& [group, update] : image.group_updates) {
    if (group < groups_.size() && !update.before.empty())
      groups_[group].set_last({Copy(update.before, &context_.pool), update.contributions});
  }
}

}  // namespace catchment
