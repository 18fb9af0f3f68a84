// What happens to the requests for a block. server/shard/block_update.cc makes the updates.
#include "server/shard/block.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

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
                           std::vector<float> weights, std::vector<std::vector<float>> states)
    : job(job),
      rule(MakeRule(job)),
      pull(Codec::ForPull(job.compression())),
      gap_sample(layout.shard(index).size()),
      pool(BufferSizes(layout, index)),
      weights(std::move(weights)),
      states(std::move(states)) {}

Block::Block(BlockContext* context, Range range, std::vector<int64_t> tensor_ends, uint32_t groups,
             v1::BlockState state)
    : context_(*context),
      range_(range),
      tensor_ends_(std::move(tensor_ends)),
      state_(std::move(state)),
      momentum_(MakeMomentumControl(context->job, range.size())),
      groups_(groups, Group(state_.version())) {
  if (momentum_ != nullptr) momentum_->Restore(state_.momentum());
}

// ------------------------------------------------------------------------------------------------ requests

void Block::Pull(Request request, BlockCall* call) {
  MutexLock lock(&mu_);
  if (request.header.version <= state_.version()) {
    return Emit({std::move(request), EncodeWeights(), v1::Block::APPLIED}, state_.version(), call);
  }
  // A worker waits for one version at a time: another request of it is of a connection that has broken.
  for (const Request& pull : pulls_) {
    const bool same = pull.worker == request.worker && pull.incarnation == request.incarnation;
    if (same && pull.connection > request.connection) return;
  }
  std::erase_if(pulls_, [&](const Request& pull) { return pull.worker == request.worker; });
  pulls_.push_back(std::move(request));
}

absl::Status Block::Push(WorkerRecord* worker, Request request, BlockCall* call) {
  const BlockHeader& header = request.header;
  const Gate& gate = call->commanded.gate;
  MutexLock lock(&mu_);
  const absl::StatusOr<PushLedger::Seen> seen = Look(header, worker);
  if (!seen.ok()) return seen.status();
  if (*seen == PushLedger::Seen::kDone) {
    HandleDuplicate(std::move(request), call);
    return absl::OkStatus();
  }
  if (header.version > state_.version()) {
    return absl::InvalidArgumentError(absl::StrCat("a contribution computed at version ", header.version,
                                                   " of block ", header.block, ", which is at ",
                                                   state_.version()));
  }
  {
    MutexLock worker_lock(&worker->mu);
    absl::Status status = worker->ledger.Arrived(header.sequence, header.block, header.steps);
    if (!status.ok()) return status;
    request.sent = worker->sent[header.block];
  }
  if (IsLate(request, gate)) {
    state_.set_late_samples(state_.late_samples() + header.samples);
    Reject(worker, std::move(request), v1::Block::LATE, call);
  } else if (gate.in_groups()) {
    const uint32_t group = gate.GroupOf(request.worker);
    const Gate::Arrival arrival{request.worker, request.incarnation};
    Group& members = groups_[group];
    gate.Count(arrival, members.Add(std::move(request)), &members.tally());
    AdvanceGroup(group, call);
  } else if (gate.answers_at_once()) {
    Accept(worker, std::move(request), call);
  } else {
    queue_.Push(std::move(request));
    AdvanceQueue(call);
  }
  return absl::OkStatus();
}

absl::StatusOr<PushLedger::Seen> Block::Look(const BlockHeader& header, WorkerRecord* worker) {
  MutexLock lock(&worker->mu);
  absl::StatusOr<PushLedger::Seen> seen = worker->ledger.Look(header.sequence, header.block);
  if (seen.ok() && *seen == PushLedger::Seen::kDone) worker->ledger.CountDuplicate();
  return seen;
}

void Block::HandleDuplicate(Request request, BlockCall* call) {
  for (Held& held : held_) {
    Request& first = held.outcome.request;
    if (first.worker != request.worker || first.incarnation != request.incarnation) continue;
    if (first.header.sequence != request.header.sequence) continue;
    // The connection over which the first copy was to be answered has broken, unless it is the newer one.
    if (request.connection < first.connection) return;
    first.sink = std::move(request.sink);
    first.connection = request.connection;
    return;
  }
  AnswerOnly(std::move(request), v1::Block::DUPLICATE, call);
}

bool Block::IsLate(const Request& request, const Gate& gate) const {
  return gate.in_groups() && request.header.version < groups_[gate.GroupOf(request.worker)].base();
}

void Block::Reject(WorkerRecord* worker, Request request, v1::Block::Fate fate, BlockCall* call) {
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Done(request.header.sequence, request.header.block, fate, 0);
  }
  AnswerOnly(std::move(request), fate, call);
}

void Block::Accept(WorkerRecord* worker, Request request, BlockCall* call) {
  if (!request.finite) return Reject(worker, std::move(request), v1::Block::NON_FINITE, call);
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Accept(request.header.sequence, request.header.block);
  }
  Request answered{request.worker, request.incarnation, request.header, nullptr, std::move(request.sink)};
  queue_.Push(std::move(request));
  AdvanceQueue(call);
  AnswerOnly(std::move(answered), v1::Block::ACCEPTED, call);
}

void Block::TakeRosters(BlockCall* call) {
  const CommandedState& commanded = call->commanded;
  const Gate& gate = commanded.gate;
  MutexLock lock(&mu_);
  for (Group& group : groups_) {
    group.EraseIf(
        [&gate](const Request& request) { return !gate.IsMember(request.worker, request.incarnation); });
  }
  if (gate.bounded() && !commanded.workers.empty()) finished_.resize(commanded.workers.rbegin()->first + 1);
  for (uint32_t group = 0; group < gate.groups(); ++group) AdvanceGroup(group, call);
  if (!gate.in_groups()) AdvanceQueue(call);
  if (gate.bounded()) ReleaseHeld({}, call);
}

// ------------------------------------------------------------------------------------------------- answers

void Block::Settle(const Outcome& outcome, const CommandedState& commanded) {
  const Request& request = outcome.request;
  WorkerRecord* const worker = commanded.workers.at(request.worker).get();
  MutexLock lock(&worker->mu);
  PushLedger& ledger = worker->ledger;
  const BlockHeader& header = request.header;
  if (ledger.incarnation() == request.incarnation) ledger.Accept(header.sequence, header.block);
  ledger.Settle(request.incarnation, header.sequence, outcome.fate, outcome.staleness, outcome.lag);
}

void Block::Hold(Outcome outcome, const Gate& gate) {
  Request& request = outcome.request;
  request.payload.reset();
  finished_[request.worker] = {request.incarnation, request.header.sequence};
  const uint64_t clock = gate.ClockOf(request.worker, finished_);
  held_.push_back({std::move(outcome), state_.version(), clock});
}

void Block::ReleaseHeld(Payload weights, BlockCall* call) {
  const Gate& gate = call->commanded.gate;
  const uint64_t highest = gate.HighestClock(finished_);
  auto later = held_.begin();
  for (Held& held : held_) {
    const Request& request = held.outcome.request;
    if (held.clock > highest && gate.IsMember(request.worker, request.incarnation)) {
      std::swap(*later++, held);
      continue;
    }
    // A worker goes on with the weights as they are now; its exchange was with the center as it was then.
    if (request.header.operation == v1::Block::PUSH_PULL) {
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
  for (Request& pull : pulls_) {
    if (pull.header.version > state_.version()) {
      std::swap(*later++, pull);
      continue;
    }
    if (weights.bytes == nullptr) weights = EncodeWeights();
    Emit({std::move(pull), weights, v1::Block::APPLIED}, state_.version(), call);
  }
  pulls_.erase(later, pulls_.end());
}

void Block::AnswerOnly(Request request, v1::Block::Fate fate, BlockCall* call) {
  Payload payload;
  if (request.header.operation == v1::Block::PUSH_PULL) payload = EncodeWeights();
  if (request.header.operation == v1::Block::EXCHANGE) payload = Difference(request);
  Emit({std::move(request), std::move(payload), fate}, state_.version(), call);
}

void Block::Emit(Outcome outcome, uint64_t version, BlockCall* call) const {
  Request& request = outcome.request;
  Payload& payload = outcome.answer;
  if (payload.bytes != nullptr) {
    context_.bytes_pulled += payload.bytes->bytes();
    WorkerRecord* const worker = call->commanded.workers.at(request.worker).get();
    MutexLock lock(&worker->mu);
    Sent& sent = worker->sent[request.header.block];
    sent.at = call->now;
    if (context_.rule->needs_sent_weights()) sent.weights = payload.bytes;
    sent.sample = std::move(payload.sample);
  }
  BlockHeader header = request.header;
  header.version = version;
  header.samples = 0;
  header.staleness = outcome.staleness;
  header.fate = outcome.fate;
  header.scale = payload.scale;
  call->answers->push_back({std::move(request.sink), header, std::move(payload.bytes)});
}

// ------------------------------------------------------------------------------------- reports and snapshots

v1::BlockState Block::State() const {
  MutexLock lock(&mu_);
  v1::BlockState state = state_;
  if (momentum_ != nullptr) *state.mutable_momentum() = momentum_->state();
  return state;
}

Block::Progress Block::Report(std::set<uint32_t>* waiting) const {
  MutexLock lock(&mu_);
  for (const Request& pull : pulls_) waiting->insert(pull.worker);
  for (const Held& held : held_) waiting->insert(held.outcome.request.worker);
  return {state_.version(), state_.samples()};
}

std::optional<v1::MomentumState> Block::Momentum() const {
  MutexLock lock(&mu_);
  if (momentum_ == nullptr) return std::nullopt;
  return momentum_->state();
}

void Block::Mark(ShardSnapshot* to) {
  MutexLock lock(&mu_);
  marks_.push_back(to);
}

void Block::Unmark(ShardSnapshot* to, bool copy) {
  MutexLock lock(&mu_);
  if (std::erase(marks_, to) > 0 && copy) CopyTo(to);
}

void Block::CopyTo(ShardSnapshot* to) const {
  const auto copy = [this](const std::vector<float>& from, std::vector<float>* values) {
    std::copy(from.begin() + range_.begin, from.begin() + range_.end, values->begin() + range_.begin);
  };
  copy(context_.weights, &to->weights);
  for (size_t s = 0; s < to->states.size(); ++s) copy(context_.states[s], &to->states[s]);
}

}  // namespace catchment
