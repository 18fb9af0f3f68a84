// The copies of a shard, and its reports.
#include "server/shard/shard_snapshot.h"

#include <algorithm>
#include <optional>
#include <set>
#include <utility>

#include "server/shard/shard.h"

namespace catchment {

PendingSnapshot::~PendingSnapshot() {
  if (shard_ == nullptr) return;
  if (!finished_) shard_->Unmark(this, /*copy=*/false);
  shard_->Return(std::move(snapshot_));
}

const ShardSnapshot& PendingSnapshot::Finish() {
  if (shard_ != nullptr && !finished_) shard_->Unmark(this, /*copy=*/true);
  finished_ = true;
  return snapshot_;
}

PendingWeights::~PendingWeights() {
  for (; next_ < copies_.size(); ++next_) shard_->blocks_[next_]->Unmark(this);
}

BufferPtr PendingWeights::Next() { return shard_->blocks_[next_++]->TakeMarked(this); }

void Shard::Checkpoint(uint64_t number) {
  // Two snapshots that are due at the same time reach the sink in the order of their numbers.
  MutexLock snapshot_lock(&snapshot_mu_);
  {
    ReaderLock lock(&roster_mu_);
    if (number <= last_checkpoint_) return;
  }
  ShardSnapshot memory = keeps_values_ ? TakeMemory() : ShardSnapshot();
  std::unique_ptr<PendingSnapshot> pending;
  {
    WriterLock lock(&roster_mu_);
    if (context_.non_finite_version > 0) return Return(std::move(memory));
    last_checkpoint_ = number;
    last_checkpoint_updates_ = context_.total_updates;
    LogCheckpoint();
    FillState(number, &memory.state);
    pending = Begin(std::move(memory));
  }
  snapshot_sink_(std::move(pending));
}

void Shard::LogCheckpoint() {
  if (context_.log == nullptr) return;
  StandbyLog::Change change;
  change.part.mutable_checkpoint()->set_number(last_checkpoint_);
  change.part.mutable_checkpoint()->set_updates(last_checkpoint_updates_);
  context_.log->Append(std::move(change));
}

Shard::Image Shard::BeginImage() {
  Image image;
  ShardSnapshot memory = Allocate();
  WriterLock lock(&roster_mu_);
  image.number = context_.log->Open();
  v1::CheckpointTaken* const checkpoint = image.begin.mutable_image()->mutable_checkpoint();
  checkpoint->set_number(last_checkpoint_);
  checkpoint->set_updates(last_checkpoint_updates_);
  for (const auto& [index, worker] : commanded_.workers) {
    MutexLock worker_lock(&worker->mu);
    *image.ledgers.emplace_back().mutable_ledger() = worker->ledger.Save(index);
  }
  image.begin.mutable_image()->set_ledgers(image.ledgers.size());
  for (const std::unique_ptr<Block>& block : blocks_) {
    image.blocks.push_back(block->Image(commanded_));
    v1::BlockChange* const whole = image.blocks.back().part.mutable_block();
    whole->set_bytes_pushed(context_.bytes_pushed);
    whole->set_bytes_pulled(context_.bytes_pulled);
  }
  image.values = Begin(std::move(memory));
  return image;
}

ShardSnapshot Shard::Snapshot() const {
  ShardSnapshot memory = Allocate();
  std::unique_ptr<PendingSnapshot> pending;
  {
    WriterLock lock(&roster_mu_);
    FillState(/*number=*/0, &memory.state);
    pending = Begin(std::move(memory));
  }
  pending->Finish();
  return std::move(pending->snapshot_);
}

std::unique_ptr<PendingWeights> Shard::BeginWeights() const {
  std::unique_ptr<PendingWeights> pending(new PendingWeights(this, blocks_.size()));
  WriterLock lock(&roster_mu_);
  for (const std::unique_ptr<Block>& block : blocks_) block->Mark(pending.get());
  return pending;
}

std::vector<float> Shard::Weights() const {
  const std::unique_ptr<PendingWeights> pending = BeginWeights();
  std::vector<float> weights;
  for (size_t b = 0; b < blocks_.size(); ++b) {
    const BufferPtr block = pending->Next();
    weights.insert(weights.end(), block->data(), block->data() + block->size());
  }
  return weights;
}

// Zeros are written, so that no page is missing when values are copied under a lock.
ShardSnapshot Shard::Allocate() const {
  ShardSnapshot memory;
  memory.weights.resize(context_.weights.size());
  memory.states = ZeroVectors(context_.states.size(), context_.weights.size());
  memory.state_names = context_.rule->state_names();
  return memory;
}

ShardSnapshot Shard::TakeMemory() {
  {
    MutexLock lock(&spare_mu_);
    if (std::optional<ShardSnapshot> spare = std::exchange(spare_, std::nullopt)) return *std::move(spare);
  }
  return Allocate();
}

void Shard::Return(ShardSnapshot memory) const {
  const bool fits =
      memory.weights.size() == context_.weights.size() && memory.states.size() == context_.states.size();
  if (!keeps_values_ || !fits) return;
  memory.state.Clear();
  MutexLock lock(&spare_mu_);
  if (!spare_.has_value()) spare_ = std::move(memory);
}

std::unique_ptr<PendingSnapshot> Shard::Begin(ShardSnapshot memory) const {
  if (memory.weights.empty()) return std::make_unique<PendingSnapshot>(std::move(memory));
  std::unique_ptr<PendingSnapshot> pending(new PendingSnapshot(this, std::move(memory)));
  for (const std::unique_ptr<Block>& block : blocks_) block->Mark(&pending->snapshot_);
  return pending;
}

void Shard::FillState(uint64_t number, v1::ShardState* state) const {
  const Range range = layout_.shard(index_);
  state->set_checkpoint(number);
  state->set_fingerprint(layout_.fingerprint());
  state->set_begin(range.begin);
  state->set_end(range.end);
  if (layout_.has_equal_blocks()) {
    state->set_block_size(layout_.block_size());
  } else {
    for (int b = 0; b < num_blocks(); ++b) state->add_block_ends(block_range(b).end);
  }
  state->set_optimizer(
      context_.rule->num_states() == 0 ? "" : v1::Optimizer::Kind_Name(context_.job.optimizer().kind()));
  uint64_t samples = 0;
  for (const std::unique_ptr<Block>& block : blocks_) {
    v1::BlockState* const added = state->add_blocks();
    *added = block->State();
    samples += added->samples();
  }
  state->set_samples(samples / blocks_.size());
  for (const auto& [index, worker] : commanded_.workers) {
    MutexLock lock(&worker->mu);
    v1::Watermark* const watermark = state->add_watermarks();
    *watermark = worker->ledger.Watermark(index);
    const v1::PushMark mark = MarkOf(index, worker->ledger);
    watermark->set_settled_steps(mark.settled_steps());
    watermark->set_begun_steps(mark.begun_steps());
    *state->add_workers() = worker->ledger.Statistics(index);
  }
}

void Shard::Unmark(PendingSnapshot* pending, bool copy) const {
  for (const std::unique_ptr<Block>& block : blocks_) block->Unmark(&pending->snapshot_, copy);
}

v1::PushMark Shard::MarkOf(uint32_t index, const PushLedger& ledger) const {
  v1::PushMark mark = ledger.Mark(index);
  // The last pushes are never applied, and no process waits for them.
  if (context_.job.algorithm().consistency().asynchronous().emulated_delay() > 0)
    mark.set_settled_steps(mark.answered_steps());
  return mark;
}

v1::ShardReport Shard::Report(bool statistics) const {
  v1::ShardReport report;
  ReaderLock lock(&roster_mu_);
  report.set_shard(index_);
  report.set_generation(commanded_.gate.generation());
  report.set_non_finite_version(context_.non_finite_version);
  uint64_t samples = 0, late_samples = 0;
  uint64_t lowest = UINT64_MAX;
  std::set<uint32_t> waiting;
  v1::GradientNoise noise;
  noise.set_updates(UINT64_MAX);
  for (const std::unique_ptr<Block>& block : blocks_) {
    const Block::Progress progress = block->Report(&waiting);
    noise.set_updates(std::min(noise.updates(), progress.noise.updates()));
    noise.set_trace(noise.trace() + progress.noise.trace());
    noise.set_squared_gradient(noise.squared_gradient() + progress.noise.squared_gradient());
    samples += progress.samples;
    late_samples += progress.late_samples;
    lowest = std::min(lowest, progress.version);
  }
  if (std::optional<v1::MomentumState> momentum = blocks_.front()->Momentum()) {
    *report.mutable_momentum() = *std::move(momentum);
  }
  report.set_learning_rate(blocks_.front()->NextLearningRate(commanded_));
  if (noise.updates() > 0) *report.mutable_noise() = noise;
  report.set_version(lowest);
  report.set_samples(samples / blocks_.size());
  report.set_late_samples(late_samples / blocks_.size());
  report.set_without_statistics(!statistics);
  if (statistics && has_quorum()) *report.mutable_quorum() = context_.quorum_counts.Statistics();
  for (const auto& [index, worker] : commanded_.workers) {
    MutexLock worker_lock(&worker->mu);
    if (statistics) {
      v1::WorkerStatistics& added = *report.add_workers();
      added = worker->ledger.Statistics(index);
      added.set_share_sum(context_.quorum_counts.SharesOf(index));
    }
    v1::PushMark* const mark = report.add_marks();
    *mark = MarkOf(index, worker->ledger);
    if (waiting.count(index) > 0) mark->set_waits(true);
    mark->set_disconnected(worker->open_connections == 0 && worker->closed_by_peer);
  }
  report.set_bytes_pushed(context_.bytes_pushed);
  report.set_bytes_pulled(context_.bytes_pulled);
  return report;
}

}  // namespace catchment
