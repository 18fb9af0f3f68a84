#include "server/shard/shard.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "common/codec/formats.h"
#include "common/job/algorithm_facts.h"
#include "common/job/learning_rate.h"
#include "server/shard/momentum_control.h"
#include "server/shard/shard_slots.h"

namespace catchment {
namespace {

// A large tensor that is a block alone gets buffers of its own size; the others share theirs. Samples of the
// center are much smaller.
std::vector<int64_t> BufferSizes(const ParameterLayout& layout, int index) {
  const Range shard = layout.shard(index);
  const GapSample sample(shard.size());
  std::vector<int64_t> sizes = {layout.block_size()};
  int64_t most_in_sample = 1;
  for (int b = 0; b < layout.num_blocks(index); ++b) {
    const Range block = layout.block(index, b);
    if (layout.cuts() == Cuts::kBetweenTensors) sizes.push_back(std::max(layout.block_size(), block.size()));
    most_in_sample =
        std::max(most_in_sample, sample.SizeIn({block.begin - shard.begin, block.end - shard.begin}));
  }
  sizes.push_back(most_in_sample);
  return sizes;
}

}  // namespace

void Deliver(std::vector<Answer>* answers) {
  for (Answer& answer : *answers) {
    AnswerSink* const sink = answer.sink.get();
    sink->Deliver(std::move(answer));
  }
  answers->clear();
}

Shard::Shard(const v1::Job& job, const ParameterLayout& layout, int index, Contents contents,
             SnapshotSink snapshot_sink, bool keeps_values)
    : job_(job),
      layout_(layout),
      index_(index),
      rule_(MakeRule(job)),
      push_(Codec::ForPush(job.compression())),
      pull_(Codec::ForPull(job.compression())),
      gap_sample_(layout.shard(index).size()),
      snapshot_sink_(std::move(snapshot_sink)),
      keeps_values_(keeps_values),
      pool_(BufferSizes(layout, index)),
      gate_(job.algorithm()),
      weights_(std::move(contents.weights)),
      states_(std::move(contents.states)) {
  const Range range = layout.shard(index);
  CHECK_EQ(static_cast<int64_t>(weights_.size()), range.size());
  if (states_.empty()) states_.assign(rule_->num_states(), std::vector<float>(range.size(), 0.0f));
  CHECK_EQ(static_cast<int>(states_.size()), rule_->num_states());
  uint64_t total_updates = 0;
  WriterLock lock(&roster_mu_);
  for (int b = 0; b < layout.num_blocks(index); ++b) {
    auto slot = std::make_unique<BlockSlot>();
    const Range block = layout.block(index, b);
    slot->local = {block.begin - range.begin, block.end - range.begin};
    if (layout.cuts() == Cuts::kBetweenTensors) slot->tensor_ends = layout.TensorEnds(index, b);
    MutexLock slot_lock(&slot->mu);
    slot->momentum = MakeMomentumControl(job_, block.size());
    if (!contents.blocks.empty()) slot->state = contents.blocks[b];
    if (slot->momentum != nullptr) slot->momentum->Restore(slot->state.momentum());
    slot->groups.assign(gate_.groups(), Group(slot->state.version()));
    total_updates += slot->state.version();
    blocks_.push_back(std::move(slot));
  }
  total_updates_ = total_updates;
  last_checkpoint_ = contents.checkpoint;
  if (keeps_values_) GiveBack(Allocate(/*with_states=*/true));
}

Shard::~Shard() = default;

// ------------------------------------------------------------------------------------------------- updates

void Shard::Advance(BlockSlot* slot, Effects* effects) {
  for (uint32_t group = 0; group < gate_.groups(); ++group) AdvanceGroup(slot, group, effects);
  if (!gate_.in_groups()) AdvanceQueue(slot, effects);
  if (gate_.bounded()) ReleaseHeld(slot, {}, effects);
}

void Shard::AdvanceGroup(BlockSlot* slot, uint32_t group, Effects* effects) {
  Group& members = slot->groups[group];
  while (true) {
    switch (gate_.Decide(slot->state.version(), group, members.arrived(), &members.tally())) {
      case Gate::Decision::kWait:
        return;
      case Gate::Decision::kUpdate:
        for (Request& request : members.waiting()) slot->contributions.push_back({std::move(request), {}});
        members.Clear();
        Update(slot, effects);
        break;
      case Gate::Decision::kSkip:
        SetVersion(slot, gate_.SkipTo(slot->state.version()), effects);
        ReleasePulls(slot, {}, effects);
        break;
    }
    members.set_base(slot->state.version());
  }
}

void Shard::AdvanceQueue(BlockSlot* slot, Effects* effects) {
  while (const size_t due = gate_.Due(slot->queue.size())) {
    for (size_t i = 0; i < due; ++i) slot->contributions.push_back({slot->queue.Pop(), {}});
    Update(slot, effects);
  }
}

void Shard::Update(BlockSlot* slot, Effects* effects) {
  const uint64_t version_before = slot->state.version();
  const Payload weights = Apply(slot, effects);
  for (Contribution& contribution : slot->contributions) {
    Request& request = contribution.request;
    contribution.fate = request.finite ? v1::Block::APPLIED : v1::Block::NON_FINITE;
    contribution.staleness = version_before - request.header.version;
    Settle(contribution);
    if (gate_.answers_at_once()) continue;
    if (gate_.bounded()) {
      Hold(slot, std::move(contribution));
      continue;
    }
    if (request.header.operation == v1::Block::PUSH_PULL) contribution.answer = weights;
    Emit(std::move(request), contribution.fate, contribution.staleness, std::move(contribution.answer),
         slot->state.version(), effects);
  }
  slot->contributions.clear();
  if (gate_.bounded()) ReleaseHeld(slot, weights, effects);
  ReleasePulls(slot, weights, effects);
}

Shard::Payload Shard::Apply(BlockSlot* slot, Effects* effects) {
  CopyMarked(slot);
  const int64_t size = slot->local.size();
  bool weights_wanted = false;
  uint64_t samples = 0;
  slot->applicable.clear();
  for (Contribution& contribution : slot->contributions) {
    const Request& request = contribution.request;
    weights_wanted |= request.header.operation == v1::Block::PUSH_PULL && !gate_.answers_at_once();
    if (!request.finite) continue;
    if (rule_->has_answers()) contribution.answer.bytes = pool_.Get(size);
    const BufferPtr& own = contribution.answer.bytes;
    float* const answer = own == nullptr ? nullptr : own->data();
    slot->applicable.push_back(
        {.values = request.payload->data(),
         .samples = request.header.samples,
         .answer = answer,
         .version = request.header.version,
         .staleness = slot->state.version() - request.header.version,
         .sent = request.sent.weights == nullptr ? nullptr : request.sent.weights->data()});
    contribution.lag = LagOf(*slot, request, effects->now);
    samples += request.header.samples;
  }
  const bool averages =
      !slot->tensor_ends.empty() && (slot->applicable.size() > 1 || rule_->needs_sent_weights());
  const BufferPtr average = averages ? pool_.Get(size) : nullptr;
  // Plain weights are copied out while they are updated.
  BufferPtr weights = weights_wanted && pull_.is_plain() ? pool_.Get(size) : nullptr;
  Rule::Center center = CenterOf(*slot);
  center.version = slot->state.version() + 1;
  center.momentum = slot->momentum.get();
  if (average != nullptr) center.average = average->data();
  const double spent = slot->state.samples() + slot->state.late_samples();
  const double progress = total_samples_ == 0 ? 0 : spent / total_samples_;
  double rate = plateau_factor_ * LearningRate(job_.optimizer(), progress);
  // Members are counted only for who wants to know.
  if (const auto scaling = job_.optimizer().worker_scaling(); scaling != v1::Optimizer::NO_SCALING) {
    rate *= WorkerScale(scaling, gate_.ActiveMembers(slot->state.version()), job_.workers());
  }
  center.learning_rate = static_cast<float>(rate);
  const bool stepped = rule_->Apply(slot->applicable, center, weights == nullptr ? nullptr : weights->data());

  // While they are in the cache.
  if (non_finite_version_ == 0 && !AreFinite(center.weights, size)) non_finite_version_ = center.version;

  slot->state.set_samples(slot->state.samples() + samples);
  if (stepped) slot->state.set_optimizer_steps(slot->state.optimizer_steps() + 1);
  // Alone and refused, a contribution makes no update; in a group the round counts.
  if (!slot->applicable.empty() || gate_.in_groups()) SetVersion(slot, slot->state.version() + 1, effects);
  if (rule_->has_answers()) {
    const BufferPtr sample = TakeSample(*slot);
    for (Contribution& contribution : slot->contributions) contribution.answer.sample = sample;
  }
  if (!weights_wanted) return {};
  if (weights == nullptr) return EncodeWeights(*slot);
  return {std::move(weights), 1, TakeSample(*slot)};
}

void Shard::Settle(const Contribution& contribution) {
  const Request& request = contribution.request;
  WorkerSlot* worker = workers_.at(request.worker).get();
  MutexLock lock(&worker->mu);
  PushLedger& ledger = worker->ledger;
  const BlockHeader& header = request.header;
  if (ledger.incarnation() == request.incarnation) ledger.Accept(header.sequence, header.block);
  ledger.Settle(request.incarnation, header.sequence, contribution.fate, contribution.staleness,
                contribution.lag);
}

void Shard::Hold(BlockSlot* slot, Contribution contribution) {
  Request& request = contribution.request;
  request.payload.reset();
  slot->finished[request.worker] = {request.incarnation, request.header.sequence};
  const uint64_t clock = gate_.ClockOf(request.worker, slot->finished);
  slot->held.push_back({std::move(contribution), slot->state.version(), clock});
}

void Shard::ReleaseHeld(BlockSlot* slot, Payload weights, Effects* effects) {
  const uint64_t highest = gate_.HighestClock(slot->finished);
  auto later = slot->held.begin();
  for (BlockSlot::Held& held : slot->held) {
    Contribution& contribution = held.contribution;
    Request& request = contribution.request;
    if (held.clock > highest && gate_.IsMember(request.worker, request.incarnation)) {
      std::swap(*later++, held);
      continue;
    }
    // A worker goes on with the weights as they are now; its exchange was with the center as it was then.
    if (request.header.operation == v1::Block::PUSH_PULL) {
      if (weights.bytes == nullptr) weights = EncodeWeights(*slot);
      contribution.answer = weights;
      held.version = slot->state.version();
    }
    Emit(std::move(request), contribution.fate, contribution.staleness, std::move(contribution.answer),
         held.version, effects);
  }
  slot->held.erase(later, slot->held.end());
}

void Shard::ReleasePulls(BlockSlot* slot, Payload weights, Effects* effects) {
  auto later = slot->pulls.begin();
  for (Request& pull : slot->pulls) {
    if (pull.header.version > slot->state.version()) {
      std::swap(*later++, pull);
      continue;
    }
    if (weights.bytes == nullptr) weights = EncodeWeights(*slot);
    Emit(std::move(pull), v1::Block::APPLIED, 0, weights, slot->state.version(), effects);
  }
  slot->pulls.erase(later, slot->pulls.end());
}

void Shard::AnswerOnly(BlockSlot* slot, Request request, v1::Block::Fate fate, Effects* effects) {
  Payload payload;
  if (request.header.operation == v1::Block::PUSH_PULL) payload = EncodeWeights(*slot);
  if (request.header.operation == v1::Block::EXCHANGE) {
    // The difference to the center as it is now; the center itself is not moved.
    const BufferPtr center_copy = CopyWeights(*slot);
    payload.bytes = pool_.Get(slot->local.size());
    payload.sample = TakeSample(*slot);
    Rule::Center center;
    center.size = slot->local.size();
    center.weights = center_copy->data();
    rule_->Apply({Rule::Contribution{.values = request.payload->data(),
                                     .samples = request.header.samples,
                                     .answer = payload.bytes->data()}},
                 center, nullptr);
  }
  Emit(std::move(request), fate, 0, std::move(payload), slot->state.version(), effects);
}

void Shard::Emit(Request request, v1::Block::Fate fate, uint64_t staleness, Payload payload, uint64_t version,
                 Effects* effects) {
  if (payload.bytes != nullptr) {
    bytes_pulled_ += payload.bytes->bytes();
    WorkerSlot* const worker = workers_.at(request.worker).get();
    MutexLock lock(&worker->mu);
    Sent& sent = worker->sent[request.header.block];
    sent.at = effects->now;
    if (rule_->needs_sent_weights()) sent.weights = payload.bytes;
    sent.sample = std::move(payload.sample);
  }
  BlockHeader header = request.header;
  header.version = version;
  header.samples = 0;
  header.staleness = staleness;
  header.fate = fate;
  header.scale = payload.scale;
  effects->answers->push_back({std::move(request.sink), header, std::move(payload.bytes)});
}

std::optional<Lag> Shard::LagOf(const BlockSlot& slot, const Request& request, double now) const {
  const Sent& sent = request.sent;
  if (!sent.at.has_value()) return std::nullopt;
  Lag lag{.seconds = now - *sent.at};
  if (sent.sample == nullptr) return lag;
  lag.squared_gap = gap_sample_.SquaredGap(slot.local, weights_.data(), sent.sample->data());
  lag.gap_values = sent.sample->size();
  return lag;
}

BufferPtr Shard::TakeSample(const BlockSlot& slot) {
  const int64_t size = gap_sample_.SizeIn(slot.local);
  if (size == 0) return nullptr;
  BufferPtr sample = pool_.Get(size);
  gap_sample_.Copy(slot.local, weights_.data(), sample->data());
  return sample;
}

BufferPtr Shard::CopyWeights(const BlockSlot& slot) {
  BufferPtr copy = pool_.Get(slot.local.size());
  std::memcpy(copy->data(), weights_.data() + slot.local.begin, copy->bytes());
  return copy;
}

Shard::Payload Shard::EncodeWeights(const BlockSlot& slot) {
  if (pull_.is_plain()) return {CopyWeights(slot), 1, TakeSample(slot)};
  const int64_t size = slot.local.size();
  Payload payload{pool_.GetBytes(pull_.PayloadBytes(size)), 1, TakeSample(slot)};
  char* const out = reinterpret_cast<char*>(payload.bytes->data());
  payload.scale = pull_.Encode(absl::MakeConstSpan(weights_).subspan(slot.local.begin, size), out);
  return payload;
}

Rule::Center Shard::CenterOf(const BlockSlot& slot) const {
  Rule::Center center;
  center.size = slot.local.size();
  center.weights = const_cast<float*>(weights_.data()) + slot.local.begin;
  for (size_t s = 0; s < states_.size(); ++s) {
    center.states[s] = const_cast<float*>(states_[s].data()) + slot.local.begin;
  }
  center.steps = slot.state.optimizer_steps();
  center.compensation_begin = slot.state.compensation_begin();
  center.tensor_ends = slot.tensor_ends;
  return center;
}

void Shard::SetVersion(BlockSlot* slot, uint64_t version, Effects* effects) {
  const uint64_t more = version - slot->state.version();
  slot->state.set_version(version);
  const uint64_t after = (total_updates_ += more);
  const uint64_t due_at = announced_version_ * blocks_.size();
  if (after >= due_at && after - more < due_at) effects->due_checkpoint = announced_checkpoint_;
}

// ------------------------------------------------------------------------------------------- from the master

void Shard::SetRosters(const v1::ShardCommand& command, double now, std::vector<Answer>* answers) {
  Effects effects{answers, now};
  {
    WriterLock lock(&roster_mu_);
    if (command.total_samples() > 0) total_samples_ = command.total_samples();
    if (command.has_plateau_factor()) plateau_factor_ = command.plateau_factor();
    if (!gate_.SetRosters(command.generation(), {command.rosters().begin(), command.rosters().end()})) return;
    announced_checkpoint_ = command.checkpoint();
    announced_version_ = command.checkpoint_version();
    for (const v1::Roster& roster : command.rosters()) {
      for (const v1::Member& member : roster.members()) {
        std::unique_ptr<WorkerSlot>& worker = workers_[member.worker()];
        if (worker == nullptr) worker = std::make_unique<WorkerSlot>(num_blocks());
        MutexLock worker_lock(&worker->mu);
        if (worker->ledger.incarnation() < member.incarnation()) worker->Begin(member.incarnation());
      }
    }
    for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
      MutexLock slot_lock(&slot->mu);
      for (Group& group : slot->groups) {
        group.EraseIf([this](const Request& request) ABSL_NO_THREAD_SAFETY_ANALYSIS {
          return !gate_.IsMember(request.worker, request.incarnation);
        });
      }
      if (gate_.bounded() && !workers_.empty()) slot->finished.resize(workers_.rbegin()->first + 1);
      Advance(slot.get(), &effects);
    }
    if (version() >= announced_version_) effects.due_checkpoint = announced_checkpoint_;
  }
  if (effects.due_checkpoint > 0) Checkpoint(effects.due_checkpoint);
}

bool Shard::IsMember(uint32_t worker, uint64_t incarnation) const {
  ReaderLock lock(&roster_mu_);
  return gate_.IsMember(worker, incarnation);
}

uint64_t Shard::PushUnderWay(uint32_t worker, uint64_t incarnation) const {
  ReaderLock lock(&roster_mu_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return 0;
  MutexLock worker_lock(&found->second->mu);
  const PushLedger& ledger = found->second->ledger;
  return ledger.incarnation() == incarnation ? ledger.under_way() : 0;
}

}  // namespace catchment
