// Handles the requests for a block. server/shard/block_update.cc makes the updates.
#include "server/shard/block.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"

namespace catchment {
namespace {

// Returns the capacities of the buffers. A large tensor that is a block alone gets buffers of its own size;
// the others share theirs. Samples of the center are much smaller.
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

BlockContext::BlockContext(const v1::Job& job, const ParameterLayout& layout, int index,
                           std::vector<float> weights, std::vector<std::vector<float>> states,
                           StandbyLog* log)
    : job(job),
      position(layout.shard(index).begin),
      rule(MakeRule(job, &layout)),
      has_gradient_noise(HasGradientNoise(job)),
      adds_up(AddsUpContributions(job)),
      pull(Codec::ForPull(job.compression())),
      gap_sample(layout.shard(index).size()),
      pool(BufferSizes(layout, index)),
      weights(std::move(weights)),
      states(std::move(states)),
      log(log),
      deadlines(layout.num_blocks(index)),
      calls(layout.FragmentsOfBlocks(index), layout.num_fragments()) {}

Block::Block(BlockContext* context, uint32_t index, Range range, std::vector<int64_t> tensor_ends,
             uint32_t groups, v1::BlockState state)
    : context_(*context),
      index_(index),
      range_(range),
      tensor_ends_(std::move(tensor_ends)),
      state_(std::move(state)),
      momentum_(MakeMomentumControl(context->job, range.size())),
      groups_(groups, Group(state_.version())) {
  if (momentum_ != nullptr) momentum_->Restore(state_.momentum());
}

// ------------------------------------------------------------------------------------------------ requests

void Block::Pull(Envelope envelope, uint64_t version, BlockCall* call) {
  MutexLock lock(&mu_);
  const size_t first = call->answers->size();
  PullLocked(std::move(envelope), version, call);
  Log(first, call);
}

absl::Status Block::Push(WorkerRecord* worker, Envelope envelope, Contribution contribution,
                         BlockCall* call) {
  MutexLock lock(&mu_);
  const size_t first = call->answers->size();
  absl::Status status = PushLocked(worker, std::move(envelope), std::move(contribution), call);
  Log(first, call);
  return status;
}

void Block::TakeRosters(BlockCall* call) {
  MutexLock lock(&mu_);
  const size_t first = call->answers->size();
  TakeRostersLocked(call);
  Log(first, call);
}

void Block::Tick(BlockCall* call) {
  MutexLock lock(&mu_);
  const size_t first = call->answers->size();
  for (uint32_t group = 0; group < groups_.size(); ++group) AdvanceGroup(group, call);
  Log(first, call);
}

void Block::PullLocked(Envelope envelope, uint64_t version, BlockCall* call) {
  if (version <= state_.version()) {
    return Emit({std::move(envelope), EncodeWeights(), v1::Block::APPLIED}, state_.version(), call);
  }
  // A worker waits for one version at a time: another request of it is of a connection that has broken.
  for (const auto& [other, other_version] : pulls_) {
    const bool same = other.worker == envelope.worker && other.incarnation == envelope.incarnation;
    if (same && other.connection > envelope.connection) return;
  }
  std::erase_if(pulls_, [&](const WaitingPull& pull) { return pull.envelope.worker == envelope.worker; });
  pulls_.push_back({std::move(envelope), version});
}

absl::Status Block::PushLocked(WorkerRecord* worker, Envelope envelope, Contribution contribution,
                               BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  ASSIGN_OR_RETURN(const PushLedger::Seen seen, Lookup(envelope.sequence, worker));
  if (seen == PushLedger::Seen::kDone) {
    HandleDuplicate(std::move(envelope), contribution, call);
    return absl::OkStatus();
  }
  if (contribution.version > state_.version()) {
    return absl::InvalidArgumentError(absl::StrCat("a contribution computed at version ",
                                                   contribution.version, " of block ", index_,
                                                   ", which is at ", state_.version()));
  }
  const uint32_t index = envelope.worker;
  const bool late = IsLate(index, contribution.version, gate);
  WaitingContribution arrived{std::move(envelope), std::move(contribution), {}};
  {
    MutexLock worker_lock(&worker->mu);
    RETURN_IF_ERROR(CheckSamples(arrived, worker->ledger));
    RETURN_IF_ERROR(worker->ledger.Arrived(arrived.envelope.sequence, index_, arrived.envelope.steps));
    arrived.sent = worker->sent[index_];
  }
  if (late) {
    state_.set_late_samples(state_.late_samples() + arrived.contribution.samples);
    const Gate::Arrival arrival{index, arrived.envelope.incarnation};
    Reject(worker, std::move(arrived), v1::Block::LATE, call);
    if (!gate.has_quorum()) return absl::OkStatus();
    const uint32_t group = gate.GroupOf(index);
    gate.CountLate(arrival, &groups_[group].tally());
    AdvanceGroup(group, call);
  } else if (gate.in_groups()) {
    const uint32_t group = gate.GroupOf(index);
    const Gate::Arrival arrival{index, arrived.envelope.incarnation};
    Group& members = groups_[group];
    const bool replaces_added = members.HasAdded([&arrival](const Envelope& added) {
      return added.worker == arrival.worker && added.incarnation != arrival.incarnation;
    });
    if (replaces_added) DropSum(&members, call);
    if (members.arrived().empty() && gate.IsBelowAll(state_.version())) CallOthers(index, call);
    gate.Count(arrival, members.Add(std::move(arrived)), &members.tally());
    AdvanceGroup(group, call);
  } else if (gate.answers_at_once()) {
    Accept(worker, std::move(arrived), call);
  } else {
    queue_.Push(std::move(arrived));
    AdvanceQueue(call);
  }
  return absl::OkStatus();
}

absl::Status Block::CheckSamples(const WaitingContribution& arrived, const PushLedger& ledger) const {
  // The last contribution of a worker has the samples of up to two periods.
  const uint64_t most_steps = 2 * uint64_t{PushPeriod(context_.job.algorithm().contribution())};
  const uint64_t steps =
      std::min(most_steps, ledger.StepsIn(index_, arrived.envelope.steps).value_or(most_steps));
  const uint64_t most = steps * LargestMinibatch(context_.job);
  if (arrived.contribution.samples <= most) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(
      "push ", arrived.envelope.sequence, " of worker ", arrived.envelope.worker, " claims ",
      arrived.contribution.samples, " samples in block ", index_, "; in its steps there are at most ", most));
}

absl::StatusOr<PushLedger::Seen> Block::Lookup(uint64_t sequence, WorkerRecord* worker) const {
  MutexLock lock(&worker->mu);
  absl::StatusOr<PushLedger::Seen> seen = worker->ledger.Lookup(sequence, index_);
  if (seen.ok() && *seen == PushLedger::Seen::kDone) worker->ledger.CountDuplicate();
  return seen;
}

void Block::HandleDuplicate(Envelope envelope, const Contribution& contribution, BlockCall* call) {
  for (Held& held : held_) {
    Envelope& first = held.outcome.envelope;
    if (first.worker != envelope.worker || first.incarnation != envelope.incarnation) continue;
    if (first.sequence != envelope.sequence) continue;
    // The connection over which the first copy was to be answered has broken, unless it is the newer one.
    if (envelope.connection < first.connection) return;
    first.sink = std::move(envelope.sink);
    first.connection = envelope.connection;
    return;
  }
  const Gate& gate = call->commanded.gate;
  // The first copy had the same values: a worker that has not been told yet that they are not finite must
  // know.
  const v1::Block::Fate fate = contribution.finite ? v1::Block::DUPLICATE : v1::Block::NON_FINITE;
  if (gate.bounded() && gate.ClockOf(envelope.worker, finished_) > gate.HighestClock(finished_)) {
    // Another process had held the first copy, before this one continued with its shard.
    Outcome outcome{std::move(envelope), {}, fate};
    if (outcome.envelope.operation == v1::Block::EXCHANGE && contribution.finite)
      outcome.answer = Difference(contribution, nullptr);
    Hold(std::move(outcome), gate);
    return;
  }
  // A worker exchanges once in an update, and waits for the answer before the next one.
  const Group::LastUpdate* const last =
      gate.in_groups() ? &groups_[gate.GroupOf(envelope.worker)].last() : nullptr;
  AnswerOnly(std::move(envelope), contribution, fate, last, call);
}

bool Block::IsLate(uint32_t worker, uint64_t version, const Gate& gate) const {
  if (!gate.in_groups()) return gate.IsTooStale(state_.version() - version);
  return version < groups_[gate.GroupOf(worker)].base();
}

void Block::Reject(WorkerRecord* worker, WaitingContribution rejected, v1::Block::Fate fate,
                   BlockCall* call) {
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Done(rejected.envelope.sequence, index_, fate, 0);
  }
  NoteSettled(rejected.envelope, fate, 0, std::nullopt);
  AnswerOnly(std::move(rejected.envelope), rejected.contribution, fate, nullptr, call);
}

void Block::Accept(WorkerRecord* worker, WaitingContribution accepted, BlockCall* call) {
  if (!accepted.contribution.finite) {
    return Reject(worker, std::move(accepted), v1::Block::NON_FINITE, call);
  }
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Accept(accepted.envelope.sequence, index_);
  }
  NoteAccepted(accepted);
  Envelope answered = accepted.envelope;
  // The contribution must not keep the connection while it waits.
  accepted.envelope.sink.reset();
  queue_.Push(std::move(accepted));
  AdvanceQueue(call);
  AnswerOnly(std::move(answered), Contribution(), v1::Block::ACCEPTED, nullptr, call);
}

void Block::TakeRostersLocked(BlockCall* call) {
  const CommandedState& commanded = call->commanded;
  const Gate& gate = commanded.gate;
  const auto has_left = [&gate](const Envelope& envelope) {
    return !gate.IsMember(envelope.worker, envelope.incarnation);
  };
  for (Group& group : groups_) {
    if (group.HasAdded(has_left)) DropSum(&group, call);
    group.EraseIf([&](const WaitingContribution& waiting) { return has_left(waiting.envelope); });
  }
  if (gate.bounded() && !commanded.workers.empty()) finished_.resize(commanded.workers.rbegin()->first + 1);
  for (uint32_t group = 0; group < gate.groups(); ++group) AdvanceGroup(group, call);
  if (!gate.in_groups()) AdvanceQueue(call);
  if (gate.bounded()) ReleaseHeld({}, call);
}

void Block::CallOthers(uint32_t opener, BlockCall* call) {
  const uint64_t version = state_.version();
  if (!context_.calls.Begin(index_, version)) return;
  call->commanded.gate.ForEachActive(version, [&](const Gate::Arrival& member) {
    if (member.worker == opener) return;
    WorkerRecord* const worker = call->commanded.workers.at(member.worker).get();
    MutexLock lock(&worker->mu);
    if (std::shared_ptr<AnswerSink> sink = worker->sink.lock())
      call->answers->push_back(MakeCall(std::move(sink), {index_, version}));
  });
}

// ------------------------------------------------------------------------------------------------- answers

void Block::Settle(const Outcome& outcome, const std::optional<Lag>& lag, const CommandedState& commanded) {
  const Envelope& envelope = outcome.envelope;
  NoteSettled(envelope, outcome.fate, outcome.staleness, lag);
  WorkerRecord* const worker = commanded.workers.at(envelope.worker).get();
  MutexLock lock(&worker->mu);
  PushLedger& ledger = worker->ledger;
  if (ledger.incarnation() == envelope.incarnation) ledger.Accept(envelope.sequence, index_);
  ledger.Settle(envelope.incarnation, envelope.sequence, index_, outcome.fate, outcome.staleness, lag);
}

void Block::Hold(Outcome outcome, const Gate& gate) {
  const Envelope& envelope = outcome.envelope;
  finished_[envelope.worker] = {envelope.incarnation, envelope.sequence};
  const uint64_t clock = gate.ClockOf(envelope.worker, finished_);
  held_.push_back({std::move(outcome), state_.version(), clock});
}

void Block::ReleaseHeld(Payload weights, BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  const uint64_t highest = gate.HighestClock(finished_);
  auto later = held_.begin();
  for (Held& held : held_) {
    const Envelope& envelope = held.outcome.envelope;
    if (held.clock > highest && gate.IsMember(envelope.worker, envelope.incarnation)) {
      std::swap(*later++, held);
      continue;
    }
    // Send the current weights. The exchange itself used the center at the time of the update.
    if (envelope.operation == v1::Block::PUSH_PULL) {
      if (weights.bytes == nullptr) weights = EncodeWeights();
      held.outcome.answer = weights;
      held.version = state_.version();
    }
    Emit(std::move(held.outcome), held.version, call);
  }
  held_.erase(later, held_.end());
}

void Block::ReleasePulls(Payload weights, BlockCall* call) {
  auto later = pulls_.begin();
  for (WaitingPull& pull : pulls_) {
    if (pull.version > state_.version()) {
      std::swap(*later++, pull);
      continue;
    }
    if (weights.bytes == nullptr) weights = EncodeWeights();
    Emit({std::move(pull.envelope), weights, v1::Block::APPLIED}, state_.version(), call);
  }
  pulls_.erase(later, pulls_.end());
}

void Block::AnswerOnly(Envelope envelope, const Contribution& contribution, v1::Block::Fate fate,
                       const Group::LastUpdate* last, BlockCall* call) {
  Payload payload;
  if (envelope.operation == v1::Block::PUSH_PULL) payload = EncodeWeights();
  if (envelope.operation == v1::Block::EXCHANGE && contribution.finite)
    payload = Difference(contribution, last);
  Emit({std::move(envelope), std::move(payload), fate}, state_.version(), call);
}

void Block::Emit(Outcome outcome, uint64_t version, BlockCall* call) {
  Envelope& envelope = outcome.envelope;
  Payload& payload = outcome.answer;
  if (payload.bytes != nullptr) {
    context_.bytes_pulled += payload.bytes->bytes();
    if (context_.log != nullptr && context_.rule->needs_sent_weights()) {
      changes_.any = true;
      changes_.sent.push_back({envelope.worker, payload.bytes, version});
    }
    WorkerRecord* const worker = call->commanded.workers.at(envelope.worker).get();
    MutexLock lock(&worker->mu);
    Sent& sent = worker->sent[index_];
    const uint64_t last = std::exchange(sent.version, version);
    sent.version_before = sent.at ? last : version;
    sent.at = call->now;
    if (context_.rule->needs_sent_weights()) sent.weights = payload.bytes;
    sent.sample = std::move(payload.sample);
  }
  const BlockHeader header{.operation = envelope.operation,
                           .sequence = envelope.sequence,
                           .version = version,
                           .block = index_,
                           .staleness = outcome.staleness,
                           .fate = outcome.fate,
                           .scale = payload.scale,
                           .steps = envelope.steps};
  call->answers->push_back(
      {std::move(envelope.sink), header, std::move(payload.bytes), /*change=*/0, call->now});
}

// ------------------------------------------------------------------------------------- reports and snapshots

uint64_t Block::version() const {
  MutexLock lock(&mu_);
  return state_.version();
}

v1::BlockState Block::State() const {
  MutexLock lock(&mu_);
  return StateLocked();
}

v1::BlockState Block::StateLocked() const {
  v1::BlockState state = state_;
  if (momentum_ != nullptr) *state.mutable_momentum() = momentum_->state();
  return state;
}

Block::Progress Block::Report(std::set<uint32_t>* waiting) const {
  MutexLock lock(&mu_);
  for (const WaitingPull& pull : pulls_) waiting->insert(pull.envelope.worker);
  for (const Held& held : held_) waiting->insert(held.outcome.envelope.worker);
  return {state_.version(), state_.samples(), state_.late_samples(), noise_};
}

std::optional<v1::MomentumState> Block::Momentum() const {
  MutexLock lock(&mu_);
  if (momentum_ == nullptr) return std::nullopt;
  return momentum_->state();
}

double Block::NextLearningRate(const CommandedState& commanded) const {
  MutexLock lock(&mu_);
  return LearningRateNow(commanded);
}

BufferPtr Block::Weights() const {
  MutexLock lock(&mu_);
  return CopyWeights();
}

void Block::Mark(ShardSnapshot* to) {
  MutexLock lock(&mu_);
  marks_.push_back(to);
}

void Block::Unmark(ShardSnapshot* to, bool copy) {
  MutexLock lock(&mu_);
  if (std::erase(marks_, to) > 0 && copy) CopyTo(to);
}

void Block::Mark(PendingWeights* reader) {
  MutexLock lock(&mu_);
  readers_.push_back(reader);
}

void Block::Unmark(PendingWeights* reader) {
  MutexLock lock(&mu_);
  std::erase(readers_, reader);
}

BufferPtr Block::TakeMarked(PendingWeights* reader) {
  MutexLock lock(&mu_);
  return std::erase(readers_, reader) > 0 ? CopyWeights() : std::move(reader->copies_[index_]);
}

void Block::CopyTo(ShardSnapshot* to) const {
  const auto copy = [this](const std::vector<float>& from, std::vector<float>* values) {
    std::copy(from.begin() + range_.begin, from.begin() + range_.end, values->begin() + range_.begin);
  };
  copy(context_.weights, &to->weights);
  for (size_t s = 0; s < to->states.size(); ++s) copy(context_.states[s], &to->states[s]);
}

}  // namespace catchment
