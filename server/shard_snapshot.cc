// Copies of a shard, and what it says of itself.
#include <optional>
#include <set>

#include "server/shard.h"
#include "server/shard_slots.h"

namespace catchment {

void Shard::Checkpoint(uint64_t number) {
  // Two that are due at once go out one after the other, the higher number never before the lower.
  MutexLock snapshot_lock(&snapshot_mu_);
  std::optional<ShardSnapshot> snapshot;
  {
    WriterLock lock(&roster_mu_);
    if (number <= last_checkpoint_) return;
    last_checkpoint_ = number;
    snapshot = CopyAll(number);
  }
  snapshot_sink_(*std::move(snapshot));
}

ShardSnapshot Shard::Snapshot() const {
  WriterLock lock(&roster_mu_);
  return CopyAll(0);
}

std::vector<float> Shard::Weights() const {
  WriterLock lock(&roster_mu_);
  return weights_;
}

ShardSnapshot Shard::CopyAll(uint64_t number) const {
  ShardSnapshot snapshot;
  v1::ShardState& state = snapshot.state;
  const Range range = layout_.shard(index_);
  state.set_checkpoint(number);
  state.set_fingerprint(layout_.fingerprint());
  state.set_begin(range.begin);
  state.set_end(range.end);
  if (layout_.cuts() == Cuts::kAnywhere) {
    state.set_block_size(layout_.block_size());
  } else {
    for (int b = 0; b < num_blocks(); ++b) state.add_block_ends(block_range(b).end);
  }
  state.set_optimizer(rule_->num_states() == 0 ? "" : v1::Optimizer::Kind_Name(job_.optimizer().kind()));
  uint64_t samples = 0;
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock lock(&slot->mu);
    v1::BlockState* const block = state.add_blocks();
    *block = slot->state;
    if (slot->momentum != nullptr) *block->mutable_momentum() = slot->momentum->state();
    samples += slot->state.samples();
  }
  state.set_samples(samples / blocks_.size());
  for (const auto& [index, worker] : workers_) {
    MutexLock lock(&worker->mu);
    *state.add_watermarks() = worker->ledger.Watermark(index);
    *state.add_workers() = worker->ledger.Statistics(index);
  }
  snapshot.weights = weights_;
  snapshot.states = states_;
  snapshot.state_names = rule_->state_names();
  return snapshot;
}

v1::ShardReport Shard::Report(bool statistics) const {
  v1::ShardReport report;
  ReaderLock lock(&roster_mu_);
  report.set_shard(index_);
  report.set_generation(gate_.generation());
  report.set_version(version());
  uint64_t samples = 0;
  std::set<uint32_t> waiting;
  for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
    MutexLock slot_lock(&slot->mu);
    samples += slot->state.samples();
    for (const Request& pull : slot->pulls) waiting.insert(pull.worker);
    for (const BlockSlot::Held& held : slot->held) waiting.insert(held.contribution.request.worker);
    if (slot == blocks_.front() && slot->momentum != nullptr) {
      *report.mutable_momentum() = slot->momentum->state();
    }
  }
  report.set_samples(samples / blocks_.size());
  report.set_without_statistics(!statistics);
  for (const auto& [index, worker] : workers_) {
    MutexLock worker_lock(&worker->mu);
    if (statistics) *report.add_workers() = worker->ledger.Statistics(index);
    v1::PushMark* const mark = report.add_marks();
    *mark = worker->ledger.Mark(index);
    if (waiting.count(index) > 0) mark->set_waits(true);
    // The last ones are never applied, and are not waited for.
    if (job_.algorithm().emulated_delay() > 0) mark->set_settled_steps(mark->answered_steps());
  }
  report.set_bytes_pushed(bytes_pushed_);
  report.set_bytes_pulled(bytes_pulled_);
  return report;
}

}  // namespace catchment
