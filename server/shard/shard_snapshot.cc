// Copies of a shard, and what it says of itself.
#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "server/shard/shard.h"
#include "server/shard/shard_slots.h"

namespace catchment {

PendingSnapshot::~PendingSnapshot() {
  if (shard_ == nullptr) return;
  if (!finished_) shard_->Unmark(this, /*copy=*/false);
  shard_->GiveBack(std::move(snapshot_));
}

const ShardSnapshot& PendingSnapshot::Finish() {
  if (shard_ != nullptr && !finished_) shard_->Unmark(this, /*copy=*/true);
  finished_ = true;
  return snapshot_;
}

void Shard::Checkpoint(uint64_t number) {
  // Two that are due at once go out one after the other, the higher number never before the lower.
  MutexLock snapshot_lock(&snapshot_mu_);
  {
    ReaderLock lock(&roster_mu_);
    if (number <= last_checkpoint_) return;
  }
  ShardSnapshot memory = keeps_values_ ? TakeMemory() : ShardSnapshot();
  std::unique_ptr<PendingSnapshot> pending;
  {
    WriterLock lock(&roster_mu_);
    if (non_finite_version_ > 0) return GiveBack(std::move(memory));
    last_checkpoint_ = number;
    FillState(number, &memory.state);
    pending = Begin(std::move(memory));
  }
  snapshot_sink_(std::move(pending));
}

ShardSnapshot Shard::Snapshot() const {
  ShardSnapshot memory = Allocate(/*with_states=*/true);
  std::unique_ptr<PendingSnapshot> pending;
  {
    WriterLock lock(&roster_mu_);
    FillState(/*number=*/0, &memory.state);
    pending = Begin(std::move(memory));
  }
  pending->Finish();
  return std::move(pending->snapshot_);
}

std::vector<float> Shard::Weights() const {
  ShardSnapshot memory = Allocate(/*with_states=*/false);
  std::unique_ptr<PendingSnapshot> pending;
  {
    WriterLock lock(&roster_mu_);
    pending = Begin(std::move(memory));
  }
  pending->Finish();
  return std::move(pending->snapshot_.weights);
}

// Zeros are written, so that no page is missing when values are copied under a lock.
ShardSnapshot Shard::Allocate(bool with_states) const {
  ShardSnapshot memory;
  memory.weights.resize(weights_.size());
  if (!with_states) return memory;
  memory.states.assign(states_.size(), std::vector<float>(weights_.size()));
  memory.state_names = rule_->state_names();
  return memory;
}

ShardSnapshot Shard::TakeMemory() {
  {
    MutexLock lock(&spare_mu_);
    if (std::optional<ShardSnapshot> spare = std::exchange(spare_, std::nullopt)) return *std::move(spare);
  }
  return Allocate(/*with_states=*/true);
}

void Shard::GiveBack(ShardSnapshot memory) const {
  const bool fits = memory.weights.size() == weights_.size() && memory.states.size() == states_.size();
  if (!keeps_values_ || !fits) return;
  memory.state.Clear();
  MutexLock lock(&spare_mu_);
  if (!spare_.has_value()) spare_ = std::move(memory);
}

std::unique_ptr<PendingSnapshot> Shard::Begin(ShardSnapshot memory) const {
  if (memory.weights.empty()) return std::make_unique<PendingSnapshot>(std::move(memory));
  std::unique_ptr<PendingSnapshot> pending(new PendingSnapshot(this, std::move(memory)));
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock lock(&slot->mu);
    slot->marks.push_back(pending.get());
  }
  return pending;
}

void Shard::FillState(uint64_t number, v1::ShardState* state) const {
  const Range range = layout_.shard(index_);
  state->set_checkpoint(number);
  state->set_fingerprint(layout_.fingerprint());
  state->set_begin(range.begin);
  state->set_end(range.end);
  if (layout_.cuts() == Cuts::kAnywhere) {
    state->set_block_size(layout_.block_size());
  } else {
    for (int b = 0; b < num_blocks(); ++b) state->add_block_ends(block_range(b).end);
  }
  state->set_optimizer(rule_->num_states() == 0 ? "" : v1::Optimizer::Kind_Name(job_.optimizer().kind()));
  uint64_t samples = 0;
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock lock(&slot->mu);
    v1::BlockState* const block = state->add_blocks();
    *block = slot->state;
    if (slot->momentum != nullptr) *block->mutable_momentum() = slot->momentum->state();
    samples += slot->state.samples();
  }
  state->set_samples(samples / blocks_.size());
  for (const auto& [index, worker] : workers_) {
    MutexLock lock(&worker->mu);
    v1::Watermark* const watermark = state->add_watermarks();
    *watermark = worker->ledger.Watermark(index);
    watermark->set_settled_steps(MarkOf(index, worker->ledger).settled_steps());
    *state->add_workers() = worker->ledger.Statistics(index);
  }
}

void Shard::CopyMarked(BlockSlot* slot) const {
  for (PendingSnapshot* pending : slot->marks) CopyBlock(*slot, &pending->snapshot_);
  slot->marks.clear();
}

void Shard::CopyBlock(const BlockSlot& slot, ShardSnapshot* to) const {
  const int64_t begin = slot.local.begin;
  const int64_t end = slot.local.end;
  std::copy(weights_.begin() + begin, weights_.begin() + end, to->weights.begin() + begin);
  for (size_t s = 0; s < to->states.size(); ++s) {
    std::copy(states_[s].begin() + begin, states_[s].begin() + end, to->states[s].begin() + begin);
  }
}

void Shard::Unmark(PendingSnapshot* pending, bool copy) const {
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock lock(&slot->mu);
    if (std::erase(slot->marks, pending) > 0 && copy) CopyBlock(*slot, &pending->snapshot_);
  }
}

v1::PushMark Shard::MarkOf(uint32_t index, const PushLedger& ledger) const {
  v1::PushMark mark = ledger.Mark(index);
  // The last ones are never applied, and are not waited for.
  if (job_.algorithm().emulated_delay() > 0) mark.set_settled_steps(mark.answered_steps());
  return mark;
}

v1::ShardReport Shard::Report(bool statistics) const {
  v1::ShardReport report;
  ReaderLock lock(&roster_mu_);
  report.set_shard(index_);
  report.set_generation(gate_.generation());
  report.set_non_finite_version(non_finite_version_);
  uint64_t samples = 0;
  uint64_t lowest = UINT64_MAX;
  std::set<uint32_t> waiting;
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock slot_lock(&slot->mu);
    samples += slot->state.samples();
    lowest = std::min(lowest, slot->state.version());
    for (const Request& pull : slot->pulls) waiting.insert(pull.worker);
    for (const BlockSlot::Held& held : slot->held) waiting.insert(held.contribution.request.worker);
    if (slot == blocks_.front() && slot->momentum != nullptr) {
      *report.mutable_momentum() = slot->momentum->state();
    }
  }
  report.set_version(lowest);
  report.set_samples(samples / blocks_.size());
  report.set_without_statistics(!statistics);
  for (const auto& [index, worker] : workers_) {
    MutexLock worker_lock(&worker->mu);
    if (statistics) *report.add_workers() = worker->ledger.Statistics(index);
    v1::PushMark* const mark = report.add_marks();
    *mark = MarkOf(index, worker->ledger);
    if (waiting.count(index) > 0) mark->set_waits(true);
    mark->set_disconnected(worker->open_connections == 0 && worker->closed_by_peer);
  }
  report.set_bytes_pushed(bytes_pushed_);
  report.set_bytes_pulled(bytes_pulled_);
  return report;
}

}  // namespace catchment
