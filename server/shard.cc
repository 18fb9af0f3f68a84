#include "server/shard.h"

#include <glog/logging.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/job/learning_rate.h"
#include "server/shard_slots.h"

namespace catchment {
namespace {

bool AllFinite(const float* values, int64_t n) {
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t found = 0;
  for (int64_t i = 0; i < n; ++i) {
    found |= (std::bit_cast<uint32_t>(values[i]) & kExponent) == kExponent;
  }
  return found == 0;
}

bool IsPush(v1::Block::Operation operation) {
  return operation == v1::Block::PUSH || operation == v1::Block::PUSH_PULL;
}

// Buffers that a shard keeps for reuse: enough for a few workers' pushes and answers of all blocks.
constexpr int kBuffersPerBlock = 8;

}  // namespace

void Deliver(std::vector<Answer>* answers) {
  for (Answer& answer : *answers) {
    AnswerSink* const sink = answer.sink.get();
    sink->Deliver(std::move(answer));
  }
  answers->clear();
}

Shard::Shard(const v1::Job& job, const ParameterLayout& layout, int index, Contents contents,
             SnapshotSink snapshot_sink)
    : job_(job),
      layout_(layout),
      index_(index),
      rule_(MakeRule(job)),
      snapshot_sink_(std::move(snapshot_sink)),
      pool_(layout.block_size(), kBuffersPerBlock * layout.num_blocks(index)),
      gate_(job.algorithm().consistency()),
      weights_(std::move(contents.weights)),
      states_(std::move(contents.states)) {
  const Range range = layout.shard(index);
  CHECK_EQ(static_cast<int64_t>(weights_.size()), range.size());
  if (states_.empty()) states_.assign(rule_->num_states(), std::vector<float>(range.size(), 0.0f));
  CHECK_EQ(static_cast<int>(states_.size()), rule_->num_states());
  uint64_t total_updates = 0;
  for (int b = 0; b < layout.num_blocks(index); ++b) {
    auto slot = std::make_unique<BlockSlot>();
    const Range block = layout.block(index, b);
    slot->local = {block.begin - range.begin, block.end - range.begin};
    MutexLock lock(&slot->mu);
    if (!contents.blocks.empty()) slot->state = contents.blocks[b];
    total_updates += slot->state.version();
    blocks_.push_back(std::move(slot));
  }
  total_updates_ = total_updates;
  WriterLock lock(&roster_mu_);
  last_checkpoint_ = contents.checkpoint;
}

Shard::~Shard() = default;

// ------------------------------------------------------------------------------------------------ requests

absl::Status Shard::Handle(Request request, std::vector<Answer>* answers) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  if (request.payload != nullptr) bytes_pushed_ += request.payload->bytes();
  Effects effects{answers};
  {
    ReaderLock lock(&roster_mu_);
    if (absl::Status status = HandleLocked(&request, &effects); !status.ok()) return status;
  }
  // Before the answers go out: in synchronous mode no worker can begin the next version until then.
  if (effects.due_checkpoint > 0) Checkpoint(effects.due_checkpoint);
  return absl::OkStatus();
}

absl::Status Shard::Check(const Request& request) const {
  const BlockHeader& header = request.header;
  if (header.block >= blocks_.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", header.block, " of shard ", index_, ", which has ", blocks_.size(), " blocks"));
  }
  const bool pull = header.operation == v1::Block::PULL;
  const bool fits = rule_->has_answers() ? header.operation == v1::Block::EXCHANGE : IsPush(header.operation);
  if (!pull && !fits) {
    const std::string name = v1::Block::Operation_Name(header.operation);
    return absl::InvalidArgumentError(absl::StrCat("operation ", name.empty() ? absl::StrCat(header.operation) : name,
                                                   " does not belong to this job's algorithm"));
  }
  const int64_t expected = pull ? 0 : blocks_[header.block]->local.size();
  const int64_t got = request.payload == nullptr ? 0 : request.payload->size();
  if (expected != got) {
    return absl::InvalidArgumentError(absl::StrCat("block ", header.block, " of shard ", index_, " takes ",
                                                   expected, " values, and ", got, " came"));
  }
  return absl::OkStatus();
}

absl::Status Shard::HandleLocked(Request* request, Effects* effects) {
  absl::StatusOr<WorkerSlot*> worker = FindWorker(*request);
  if (!worker.ok()) return worker.status();
  BlockSlot* slot = blocks_[request->header.block].get();
  if (request->header.operation == v1::Block::PULL) {
    HandlePull(slot, std::move(*request), effects);
    return absl::OkStatus();
  }
  return HandlePush(slot, *worker, std::move(*request), effects);
}

absl::StatusOr<Shard::WorkerSlot*> Shard::FindWorker(const Request& request) const {
  const auto found = workers_.find(request.worker);
  if (found == workers_.end() || !gate_.IsMember(request.worker, request.incarnation)) {
    return absl::FailedPreconditionError(absl::StrCat("worker ", request.worker, ", incarnation ",
                                                      request.incarnation,
                                                      ", is no member of the job (any more); register again"));
  }
  return found->second.get();
}

void Shard::HandlePull(BlockSlot* slot, Request request, Effects* effects) {
  MutexLock lock(&slot->mu);
  if (request.header.version > slot->state.version()) {
    // A worker waits for one version at a time: an older request of its is of a connection that has broken.
    std::erase_if(slot->pulls, [&](const Request& pull) { return pull.worker == request.worker; });
    slot->pulls.push_back(std::move(request));
    return;
  }
  Emit(std::move(request), v1::Block::APPLIED, 0, CopyWeights(*slot), *slot, effects);
}

absl::Status Shard::HandlePush(BlockSlot* slot, WorkerSlot* worker, Request request,
                               Effects* effects) {
  const BlockHeader& header = request.header;
  const bool finite = AllFinite(request.payload->data(), request.payload->size());
  MutexLock lock(&slot->mu);
  {
    MutexLock worker_lock(&worker->mu);
    absl::StatusOr<PushLedger::Seen> seen = worker->ledger.Look(header.sequence, header.block);
    if (!seen.ok()) return seen.status();
    if (*seen == PushLedger::Seen::kDone) {
      worker->ledger.CountDuplicate();
      AnswerOnly(slot, std::move(request), v1::Block::DUPLICATE, effects);
      return absl::OkStatus();
    }
  }
  if (header.version > slot->state.version()) {
    return absl::InvalidArgumentError(absl::StrCat("a contribution computed at version ", header.version,
                                                   " of block ", header.block, ", which is at ",
                                                   slot->state.version()));
  }
  if (gate_.synchronous() && header.version < slot->state.version()) {
    {
      MutexLock worker_lock(&worker->mu);
      worker->ledger.Done(header.sequence, header.block, v1::Block::LATE, 0);
    }
    AnswerOnly(slot, std::move(request), v1::Block::LATE, effects);
    return absl::OkStatus();
  }
  auto& waiting = slot->contributions;
  const auto at = std::lower_bound(waiting.begin(), waiting.end(), request.worker,
                                   [](const auto& w, uint32_t worker) { return w.request.worker < worker; });
  BlockSlot::Waiting entry{std::move(request), finite};
  // The same worker's again: it was sent a second time over a new connection, or by a new incarnation.
  if (at != waiting.end() && at->request.worker == entry.request.worker) {
    *at = std::move(entry);
  } else {
    waiting.insert(at, std::move(entry));
  }
  Advance(slot, effects);
  return absl::OkStatus();
}

// ------------------------------------------------------------------------------------------------- updates

void Shard::Advance(BlockSlot* slot, Effects* effects) {
  while (true) {
    std::vector<uint32_t> arrived;
    for (const BlockSlot::Waiting& waiting : slot->contributions) arrived.push_back(waiting.request.worker);
    switch (gate_.Decide(slot->state.version(), arrived)) {
      case Gate::Decision::kWait:
        return;
      case Gate::Decision::kUpdate:
        Update(slot, effects);
        break;
      case Gate::Decision::kSkip:
        SetVersion(slot, gate_.SkipTo(slot->state.version()), effects);
        ReleasePulls(slot, nullptr, effects);
        break;
    }
  }
}

void Shard::Update(BlockSlot* slot, Effects* effects) {
  std::vector<BlockSlot::Waiting> waiting = std::move(slot->contributions);
  slot->contributions.clear();
  const int64_t size = slot->local.size();
  std::vector<Rule::Contribution> contributions;
  std::vector<BufferPtr> payloads(waiting.size());
  bool weights_wanted = false;
  uint64_t samples = 0;
  for (size_t i = 0; i < waiting.size(); ++i) {
    weights_wanted |= waiting[i].request.header.operation == v1::Block::PUSH_PULL;
    if (!waiting[i].finite) continue;
    if (rule_->has_answers()) payloads[i] = pool_.Get(size);
    samples += waiting[i].request.header.samples;
    contributions.push_back({waiting[i].request.payload->data(), waiting[i].request.header.samples,
                             payloads[i] == nullptr ? nullptr : payloads[i]->data()});
  }
  const BufferPtr weights = weights_wanted ? pool_.Get(size) : nullptr;
  Rule::Center center = CenterOf(*slot);
  const double progress = total_samples_ == 0 ? 0 : double(slot->state.samples()) / total_samples_;
  center.learning_rate = static_cast<float>(LearningRate(job_.optimizer(), progress));
  const bool stepped = rule_->Apply(contributions, center, weights == nullptr ? nullptr : weights->data());

  const uint64_t version_before = slot->state.version();
  slot->state.set_samples(slot->state.samples() + samples);
  if (stepped) slot->state.set_optimizer_steps(slot->state.optimizer_steps() + 1);
  // Alone and refused, a contribution makes no update; in a group the round counts.
  if (!contributions.empty() || gate_.synchronous()) SetVersion(slot, version_before + 1, effects);
  for (size_t i = 0; i < waiting.size(); ++i) {
    Request& request = waiting[i].request;
    const v1::Block::Fate fate = waiting[i].finite ? v1::Block::APPLIED : v1::Block::NON_FINITE;
    const uint64_t staleness = version_before - request.header.version;
    if (request.header.operation == v1::Block::PUSH_PULL) payloads[i] = weights;
    Finish(std::move(request), fate, staleness, std::move(payloads[i]), *slot, effects);
  }
  ReleasePulls(slot, weights, effects);
}

void Shard::ReleasePulls(BlockSlot* slot, BufferPtr weights, Effects* effects) {
  std::vector<Request> later;
  for (Request& pull : slot->pulls) {
    if (pull.header.version > slot->state.version()) {
      later.push_back(std::move(pull));
      continue;
    }
    if (weights == nullptr) weights = CopyWeights(*slot);
    Emit(std::move(pull), v1::Block::APPLIED, 0, weights, *slot, effects);
  }
  slot->pulls = std::move(later);
}

void Shard::AnswerOnly(BlockSlot* slot, Request request, v1::Block::Fate fate, Effects* effects) {
  BufferPtr payload;
  if (request.header.operation == v1::Block::PUSH_PULL) payload = CopyWeights(*slot);
  if (request.header.operation == v1::Block::EXCHANGE) {
    // The difference to the center as it is now; the center itself is not moved.
    const BufferPtr center_copy = CopyWeights(*slot);
    payload = pool_.Get(slot->local.size());
    Rule::Center center;
    center.size = slot->local.size();
    center.weights = center_copy->data();
    rule_->Apply({Rule::Contribution{request.payload->data(), request.header.samples, payload->data()}}, center,
                 nullptr);
  }
  Emit(std::move(request), fate, 0, std::move(payload), *slot, effects);
}

void Shard::Finish(Request request, v1::Block::Fate fate, uint64_t staleness, BufferPtr payload,
                   const BlockSlot& slot, Effects* effects) {
  WorkerSlot* worker = workers_.at(request.worker).get();
  {
    MutexLock lock(&worker->mu);
    if (worker->ledger.incarnation() == request.incarnation) {
      worker->ledger.Done(request.header.sequence, request.header.block, fate, staleness);
    }
  }
  Emit(std::move(request), fate, staleness, std::move(payload), slot, effects);
}

void Shard::Emit(Request request, v1::Block::Fate fate, uint64_t staleness, BufferPtr payload,
                 const BlockSlot& slot, Effects* effects) {
  if (payload != nullptr) bytes_pulled_ += payload->bytes();
  BlockHeader header = request.header;
  header.version = slot.state.version();
  header.samples = 0;
  header.staleness = staleness;
  header.fate = fate;
  effects->answers->push_back({std::move(request.sink), header, std::move(payload)});
}

BufferPtr Shard::CopyWeights(const BlockSlot& slot) {
  BufferPtr copy = pool_.Get(slot.local.size());
  std::memcpy(copy->data(), weights_.data() + slot.local.begin, copy->bytes());
  return copy;
}

Rule::Center Shard::CenterOf(const BlockSlot& slot) const {
  Rule::Center center;
  center.size = slot.local.size();
  center.weights = const_cast<float*>(weights_.data()) + slot.local.begin;
  for (size_t s = 0; s < states_.size(); ++s) {
    center.states[s] = const_cast<float*>(states_[s].data()) + slot.local.begin;
  }
  center.steps = slot.state.optimizer_steps();
  return center;
}

void Shard::SetVersion(BlockSlot* slot, uint64_t version, Effects* effects) {
  const uint64_t more = version - slot->state.version();
  slot->state.set_version(version);
  const uint64_t after = (total_updates_ += more);
  const uint64_t every = job_.checkpoint().every_updates() * blocks_.size();
  if (every > 0 && after / every != (after - more) / every) {
    effects->due_checkpoint = after / every * job_.checkpoint().every_updates();
  }
}

// -------------------------------------------------------------------------------------------- from the master

void Shard::SetRosters(const v1::ShardCommand& command, std::vector<Answer>* answers) {
  Effects effects{answers};
  {
    WriterLock lock(&roster_mu_);
    if (command.total_samples() > 0) total_samples_ = command.total_samples();
    if (!gate_.SetRosters(command.generation(), {command.rosters().begin(), command.rosters().end()})) return;
    for (const v1::Roster& roster : command.rosters()) {
      for (const v1::Member& member : roster.members()) {
        std::unique_ptr<WorkerSlot>& worker = workers_[member.worker()];
        if (worker == nullptr) worker = std::make_unique<WorkerSlot>(num_blocks());
        MutexLock worker_lock(&worker->mu);
        if (worker->ledger.incarnation() < member.incarnation()) worker->ledger.Begin(member.incarnation());
      }
    }
    for (const std::unique_ptr<BlockSlot>& slot : blocks_) {
      MutexLock slot_lock(&slot->mu);
      Advance(slot.get(), &effects);
    }
  }
  if (effects.due_checkpoint > 0) Checkpoint(effects.due_checkpoint);
}

bool Shard::IsMember(uint32_t worker, uint64_t incarnation) const {
  ReaderLock lock(const_cast<SharedMutex*>(&roster_mu_));
  return gate_.IsMember(worker, incarnation);
}

}  // namespace catchment
