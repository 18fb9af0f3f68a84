// The updates of a block, and the weights that its answers contain.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "common/codec/formats.h"
#include "common/job/algorithm_facts.h"
#include "common/job/learning_rate.h"
#include "server/shard/block.h"

namespace catchment {

void Block::AdvanceGroup(uint32_t group, BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  const QuorumTimes times = {call->now, call->commanded.step_seconds, context_.answer_seconds};
  Group& members = groups_[group];
  while (true) {
    switch (gate.Decide(state_.version(), group, members.arrived(), times, &members.tally())) {
      case Gate::Decision::kWait:
        if (gate.has_quorum())
          context_.deadlines.Set(index_, members.tally().round.deadline.value_or(Deadlines::kNever));
        AddUpWaiting(group, gate);
        return;
      case Gate::Decision::kUpdate:
        for (WaitingContribution& waiting : members.waiting()) current_.push_back({std::move(waiting)});
        if (gate.has_quorum()) CountQuorum(members.tally(), *call);
        sum_ = std::move(members.sum());
        members.Clear();
        UpdateGroup(group, call);
        break;
      case Gate::Decision::kSkip:
        SetVersion(gate.SkipTo(state_.version()), call);
        ReleasePulls({}, call);
        break;
    }
    members.set_base(state_.version());
  }
}

void Block::AddUpWaiting(uint32_t group, const Gate& gate) {
  const uint32_t expected = context_.adds_up ? gate.Expected(state_.version(), group) : 0;
  if (expected == 0) return;
  Group& members = groups_[group];
  Group::Sum& sum = members.sum();
  for (size_t i = 0; i < members.waiting().size(); ++i) {
    WaitingContribution& waiting = members.waiting()[i];
    Contribution& contribution = waiting.contribution;
    if (waiting.added) continue;
    // In the order of the workers, only what follows an unbroken sequence of them is added.
    if (context_.job.deterministic() && gate.MembersBefore(state_.version(), waiting.envelope.worker) != i)
      return;
    if (!waiting.envelope.sink->CanSendAgain()) continue;
    waiting.added = true;
    BufferPtr values = std::move(contribution.values);
    if (!contribution.finite || contribution.samples == 0) continue;
    // Without the squares of one the noise is not a number, and is ignored.
    sum.squares += MayMeasureNoise() ? contribution.samples * SumOfSquares(values->data(), size()) : NAN;
    if (sum.buffer == nullptr) sum.samples = 1.0 * expected * contribution.samples;
    const auto share = static_cast<float>(contribution.samples / sum.samples);
    if (sum.buffer != nullptr) {
      AddUp(share, values->data(), size(), sum.values);
      continue;
    }
    BeginSum(share, size(), values->data());
    sum.values = values->data();
    sum.buffer = std::move(values);
  }
}

void Block::DropSum(Group* group, BlockCall* call) {
  for (WaitingContribution& waiting : group->waiting()) {
    if (!waiting.added) continue;
    Envelope& envelope = waiting.envelope;
    WorkerRecord* const worker = call->commanded.workers.at(envelope.worker).get();
    MutexLock lock(&worker->mu);
    if (worker->ledger.incarnation() == envelope.incarnation)
      worker->ledger.Withdraw(envelope.sequence, index_);
    call->answers->push_back({.sink = std::move(envelope.sink), .again = true});
  }
  group->EraseIf([](const WaitingContribution& waiting) { return waiting.added; });
  group->sum() = {};
  // A quorum begins anew.
  group->tally().round = {};
}

void Block::CountQuorum(const Gate::Tally& tally, const BlockCall& call) {
  using End = QuorumCounts::End;
  shares_.clear();
  for (const Input& input : current_) {
    const Contribution& contribution = input.waiting.contribution;
    if (contribution.finite) shares_.push_back({input.waiting.envelope.worker, contribution.samples});
  }
  const bool all = call.commanded.gate.AreAllIn(state_.version(), tally);
  const double grace = tally.round.quorum_at ? call.now - *tally.round.quorum_at : 0;
  context_.quorum_counts.Count(!all                   ? End::kGrace
                               : call.has_new_rosters ? End::kLoss
                                                      : End::kAll,
                               grace, shares_);
}

void Block::UpdateGroup(uint32_t group, BlockCall* call) {
  if (!context_.rule->has_answers()) return Update(call);
  const BufferPtr before = CopyWeights();
  Update(call);
  const auto contributions = static_cast<uint32_t>(applicable_.size());
  groups_[group].set_last({before, contributions});
  if (context_.log != nullptr) changes_.group_updates.push_back({group, contributions, before});
}

void Block::AdvanceQueue(BlockCall* call) {
  while (const size_t due = call->commanded.gate.Due(queue_.size())) {
    for (size_t i = 0; i < due; ++i) current_.push_back({queue_.Pop()});
    if (context_.log != nullptr && call->commanded.gate.answers_at_once())
      changes_.change.set_taken(changes_.change.taken() + due);
    Update(call);
  }
}

void Block::Update(BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  const uint64_t version_before = state_.version();
  const Payload weights = Apply(call);
  for (Input& input : current_) {
    const Contribution& contribution = input.waiting.contribution;
    Outcome outcome{std::move(input.waiting.envelope), std::move(input.answer),
                    contribution.finite ? v1::Block::APPLIED : v1::Block::NON_FINITE,
                    version_before - contribution.version};
    Settle(outcome, input.lag, call->commanded);
    if (gate.answers_at_once()) continue;
    if (gate.bounded()) {
      Hold(std::move(outcome), gate);
      continue;
    }
    if (outcome.envelope.operation == v1::Block::PUSH_PULL) outcome.answer = weights;
    Emit(std::move(outcome), state_.version(), call);
  }
  current_.clear();
  if (gate.bounded()) ReleaseHeld(weights, call);
  ReleasePulls(weights, call);
}

Block::Payload Block::Apply(BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  const Rule& rule = *context_.rule;
  for (ShardSnapshot* snapshot : marks_) CopyTo(snapshot);
  marks_.clear();
  if (!readers_.empty()) {
    const BufferPtr copy = CopyWeights();
    for (PendingWeights* reader : readers_) reader->copies_[index_] = copy;
    readers_.clear();
  }
  const uint64_t samples = SelectApplicable(call->now);
  const bool averages =
      !tensor_ends_.empty() && (applicable_.size() > 1 || rule.changes_single() || sum_.buffer != nullptr);
  const BufferPtr average = averages ? context_.pool.Get(size()) : nullptr;
  const bool weights_wanted =
      !gate.answers_at_once() && std::any_of(current_.begin(), current_.end(), [](const Input& input) {
        return input.waiting.envelope.operation == v1::Block::PUSH_PULL;
      });
  // Plain weights are copied out while they are updated.
  BufferPtr weights = weights_wanted && context_.pull.is_plain() ? context_.pool.Get(size()) : nullptr;
  Rule::Center center = Center();
  center.version = state_.version() + 1;
  center.momentum = momentum_.get();
  if (average != nullptr) center.average = average->data();
  center.learning_rate = LearningRateNow(call->commanded);
  center.cycled_momentum = CycledMomentum(context_.job.optimizer(), ShareApplied(call->commanded));
  ContributionSpread spread;
  if (MeasuresNoise()) center.spread = &spread;
  if (sum_.buffer != nullptr) center.sum = &sum_;
  const bool stepped = rule.Apply(applicable_, center, weights == nullptr ? nullptr : weights->data());
  sum_ = {};
  noise_.Add(spread);
  changes_.any = changes_.values = true;
  if (context_.log != nullptr) changes_.weights = weights;

  // The weights are checked here because they are in the cache.
  if (context_.non_finite_version == 0 && !AreFinite(center.weights, size())) {
    context_.non_finite_version = center.version;
  }
  state_.set_samples(state_.samples() + samples);
  if (stepped) state_.set_optimizer_steps(state_.optimizer_steps() + 1);
  // A contribution that is alone and not finite makes no update; in a group the version counts.
  if (!applicable_.empty() || gate.in_groups()) SetVersion(state_.version() + 1, call);
  if (rule.has_answers()) {
    const BufferPtr sample = TakeSample();
    for (Input& input : current_) input.answer.sample = sample;
  }
  if (!weights_wanted) return {};
  if (weights == nullptr) return EncodeWeights();
  return {std::move(weights), 1, TakeSample()};
}

uint64_t Block::SelectApplicable(double now) {
  uint64_t samples = 0;
  applicable_.clear();
  for (Input& input : current_) {
    const Contribution& contribution = input.waiting.contribution;
    if (!contribution.finite) continue;
    if (context_.rule->has_answers()) input.answer.bytes = context_.pool.Get(size());
    const BufferPtr& own = input.answer.bytes;
    const BufferPtr& sent = input.waiting.sent.weights;
    const uint64_t staleness = state_.version() - contribution.version;
    const uint64_t sent_before = std::min(state_.version(), input.waiting.sent.version_before);
    applicable_.push_back({.values = input.waiting.added ? nullptr : contribution.values->data(),
                           .samples = contribution.samples,
                           .answer = own == nullptr ? nullptr : own->data(),
                           .version = contribution.version,
                           .staleness = staleness,
                           .measured_staleness = std::min(staleness, state_.version() - sent_before),
                           .sent = sent == nullptr ? nullptr : sent->data()});
    input.lag = LagOf(input.waiting.sent, now);
    samples += contribution.samples;
  }
  return samples;
}

bool Block::MayMeasureNoise() const {
  return context_.has_gradient_noise && state_.version() % NoiseAverage::kEvery == 0;
}

bool Block::MeasuresNoise() const {
  return MayMeasureNoise() &&
         std::all_of(applicable_.begin(), applicable_.end(), [this](const Rule::Input& input) {
           return input.version == applicable_.front().version;
         });
}

double Block::ShareApplied(const CommandedState& commanded) const {
  double spent = state_.samples() + state_.late_samples();
  if (commanded.most_samples > 0) spent = std::min(spent, static_cast<double>(commanded.most_samples));
  return commanded.total_samples == 0 ? 0 : spent / commanded.total_samples;
}

float Block::LearningRateNow(const CommandedState& commanded) const {
  const v1::Job& job = context_.job;
  double rate = commanded.plateau_factor * LearningRate(job.optimizer(), ShareApplied(commanded));
  // Members are counted only if the rate depends on their number.
  if (const auto scaling = job.optimizer().worker_scaling(); scaling != v1::Optimizer::NO_SCALING) {
    rate *= WorkerScale(scaling, commanded.gate.ActiveMembers(state_.version()), job.workers());
  }
  return static_cast<float>(rate);
}

void Block::SetVersion(uint64_t version, BlockCall* call) {
  changes_.any = true;
  const uint64_t more = version - state_.version();
  state_.set_version(version);
  const uint64_t after = (context_.total_updates += more);
  const uint64_t due_at = call->commanded.checkpoint_updates;
  if (after >= due_at && after - more < due_at) call->due_checkpoint = call->commanded.checkpoint;
}

// ------------------------------------------------------------------------------------------------- weights

Rule::Center Block::Center() {
  Rule::Center center;
  center.size = size();
  center.position = context_.position + range_.begin;
  center.weights = context_.weights.data() + range_.begin;
  for (size_t s = 0; s < context_.states.size(); ++s) {
    center.states[s] = context_.states[s].data() + range_.begin;
  }
  center.steps = state_.optimizer_steps();
  center.compensation_begin = state_.compensation_begin();
  center.tensor_ends = tensor_ends_;
  return center;
}

Block::Payload Block::Difference(const Contribution& contribution, const Group::LastUpdate* last) const {
  const bool again = last != nullptr && last->before != nullptr;
  const BufferPtr center_copy = again ? CopyOf(last->before->data()) : CopyWeights();
  Payload payload{context_.pool.Get(size()), 1, TakeSample()};
  Rule::Center center;
  center.size = size();
  center.weights = center_copy->data();
  if (again) center.contributions = last->contributions;
  context_.rule->Apply({Rule::Input{.values = contribution.values->data(),
                                    .samples = contribution.samples,
                                    .answer = payload.bytes->data()}},
                       center, nullptr);
  return payload;
}

std::optional<Lag> Block::LagOf(const Sent& sent, double now) const {
  if (!sent.at.has_value()) return std::nullopt;
  Lag lag{.seconds = now - *sent.at};
  if (sent.sample == nullptr) return lag;
  lag.squared_gap = context_.gap_sample.SquaredGap(range_, context_.weights.data(), sent.sample->data());
  lag.gap_values = sent.sample->size();
  return lag;
}

BufferPtr Block::TakeSample() const {
  const int64_t values = context_.gap_sample.SizeIn(range_);
  if (values == 0) return nullptr;
  BufferPtr sample = context_.pool.Get(values);
  context_.gap_sample.Copy(range_, context_.weights.data(), sample->data());
  return sample;
}

BufferPtr Block::CopyOf(const float* values) const {
  BufferPtr copy = context_.pool.Get(size());
  std::memcpy(copy->data(), values, copy->bytes());
  return copy;
}

BufferPtr Block::CopyWeights() const { return CopyOf(context_.weights.data() + range_.begin); }

Block::Payload Block::EncodeWeights() const {
  const Codec& codec = context_.pull;
  if (codec.is_plain()) return {CopyWeights(), 1, TakeSample()};
  Payload payload{context_.pool.GetBytes(codec.PayloadBytes(size())), 1, TakeSample()};
  char* const out = reinterpret_cast<char*>(payload.bytes->data());
  payload.scale = codec.Encode(absl::MakeConstSpan(context_.weights).subspan(range_.begin, size()), out);
  return payload;
}

}  // namespace catchment
