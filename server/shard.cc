#include "server/shard.h"

#include <glog/logging.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "common/job/learning_rate.h"
#include "server/shard_slots.h"

namespace catchment {
namespace {

bool IsPush(v1::Block::Operation operation) {
  return operation == v1::Block::PUSH || operation == v1::Block::PUSH_PULL;
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
             SnapshotSink snapshot_sink)
    : job_(job),
      layout_(layout),
      index_(index),
      rule_(MakeRule(job)),
      push_(Codec::ForPush(job.compression())),
      pull_(Codec::ForPull(job.compression())),
      snapshot_sink_(std::move(snapshot_sink)),
      pool_(layout.block_size()),
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

absl::Status Shard::ReadPayload(const PayloadView& bytes, Request* request) {
  if (bytes.size() == 0) return absl::OkStatus();
  const uint32_t block = request->header.block;
  if (absl::Status status = CheckBlock(block); !status.ok()) return status;
  const int64_t size = blocks_[block]->local.size();
  BufferPtr values = pool_.Get(size);
  const absl::StatusOr<bool> finite =
      push_.Decode(bytes, request->header.scale, absl::MakeSpan(values->data(), size));
  if (!finite.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " of shard ", index_, ": ", finite.status().message()));
  }
  request->payload = std::move(values);
  request->finite = *finite;
  return absl::OkStatus();
}

absl::Status Shard::Handle(Request request, std::vector<Answer>* answers) {
  if (absl::Status status = Check(request); !status.ok()) return status;
  if (request.payload != nullptr) bytes_pushed_ += push_.PayloadBytes(request.payload->size());
  Effects effects{answers};
  {
    ReaderLock lock(&roster_mu_);
    if (absl::Status status = HandleLocked(&request, &effects); !status.ok()) return status;
  }
  // Before the answers go out: in synchronous mode no worker can begin the next version until then.
  if (effects.due_checkpoint > 0) Checkpoint(effects.due_checkpoint);
  return absl::OkStatus();
}

absl::Status Shard::CheckBlock(uint32_t block) const {
  if (block < blocks_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("block ", block, " of shard ", index_, ", which has ", blocks_.size(), " blocks"));
}

absl::Status Shard::Check(const Request& request) const {
  const BlockHeader& header = request.header;
  if (absl::Status status = CheckBlock(header.block); !status.ok()) return status;
  const bool pull = header.operation == v1::Block::PULL;
  const bool fits = rule_->has_answers() ? header.operation == v1::Block::EXCHANGE : IsPush(header.operation);
  if (!pull && !fits) {
    const std::string name = v1::Block::Operation_Name(header.operation);
    return absl::InvalidArgumentError(absl::StrCat("operation ",
                                                   name.empty() ? absl::StrCat(header.operation) : name,
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
    return absl::FailedPreconditionError(
        absl::StrCat("worker ", request.worker, ", incarnation ", request.incarnation,
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
  Emit(std::move(request), v1::Block::APPLIED, 0, EncodeWeights(*slot), *slot, effects);
}

absl::Status Shard::HandlePush(BlockSlot* slot, WorkerSlot* worker, Request request,
                               Effects* effects) {
  const BlockHeader& header = request.header;
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
  {
    MutexLock worker_lock(&worker->mu);
    worker->ledger.Arrived(header.sequence, header.block);
  }
  AddContribution(slot, std::move(request));
  Advance(slot, effects);
  return absl::OkStatus();
}

void Shard::AddContribution(BlockSlot* slot, Request request) {
  auto& waiting = slot->contributions;
  const auto at = std::lower_bound(waiting.begin(), waiting.end(), request.worker,
                                   [](const auto& w, uint32_t worker) { return w.request.worker < worker; });
  // The same worker's again: it was sent a second time over a new connection, or by a new incarnation.
  if (at != waiting.end() && at->request.worker == request.worker) {
    at->request = std::move(request);
  } else {
    waiting.insert(at, {std::move(request), {}});
  }
}

// ------------------------------------------------------------------------------------------------- updates

void Shard::Advance(BlockSlot* slot, Effects* effects) {
  while (true) {
    slot->arrived.clear();
    for (const auto& contribution : slot->contributions) slot->arrived.push_back(contribution.request.worker);
    switch (gate_.Decide(slot->state.version(), slot->arrived)) {
      case Gate::Decision::kWait:
        return;
      case Gate::Decision::kUpdate:
        Update(slot, effects);
        break;
      case Gate::Decision::kSkip:
        SetVersion(slot, gate_.SkipTo(slot->state.version()), effects);
        ReleasePulls(slot, {}, effects);
        break;
    }
  }
}

void Shard::Update(BlockSlot* slot, Effects* effects) {
  const uint64_t version_before = slot->state.version();
  const Payload weights = Apply(slot, effects);
  for (BlockSlot::Contribution& contribution : slot->contributions) {
    Request& request = contribution.request;
    const v1::Block::Fate fate = request.finite ? v1::Block::APPLIED : v1::Block::NON_FINITE;
    const uint64_t staleness = version_before - request.header.version;
    if (request.header.operation == v1::Block::PUSH_PULL) contribution.answer = weights;
    Finish(std::move(request), fate, staleness, std::move(contribution.answer), *slot, effects);
  }
  slot->contributions.clear();
  ReleasePulls(slot, weights, effects);
}

Shard::Payload Shard::Apply(BlockSlot* slot, Effects* effects) {
  const int64_t size = slot->local.size();
  bool weights_wanted = false;
  uint64_t samples = 0;
  slot->applicable.clear();
  for (BlockSlot::Contribution& contribution : slot->contributions) {
    const Request& request = contribution.request;
    weights_wanted |= request.header.operation == v1::Block::PUSH_PULL;
    if (!request.finite) continue;
    if (rule_->has_answers()) contribution.answer.bytes = pool_.Get(size);
    const BufferPtr& own = contribution.answer.bytes;
    float* const answer = own == nullptr ? nullptr : own->data();
    slot->applicable.push_back({request.payload->data(), request.header.samples, answer});
    samples += request.header.samples;
  }
  // Plain weights are copied out while they are updated.
  BufferPtr weights = weights_wanted && pull_.is_plain() ? pool_.Get(size) : nullptr;
  Rule::Center center = CenterOf(*slot);
  const double progress = total_samples_ == 0 ? 0 : double(slot->state.samples()) / total_samples_;
  center.learning_rate = static_cast<float>(LearningRate(job_.optimizer(), progress));
  const bool stepped = rule_->Apply(slot->applicable, center, weights == nullptr ? nullptr : weights->data());

  slot->state.set_samples(slot->state.samples() + samples);
  if (stepped) slot->state.set_optimizer_steps(slot->state.optimizer_steps() + 1);
  // Alone and refused, a contribution makes no update; in a group the round counts.
  if (!slot->applicable.empty() || gate_.synchronous()) SetVersion(slot, slot->state.version() + 1, effects);
  if (weights_wanted && weights == nullptr) return EncodeWeights(*slot);
  return {std::move(weights)};
}

void Shard::ReleasePulls(BlockSlot* slot, Payload weights, Effects* effects) {
  auto later = slot->pulls.begin();
  for (Request& pull : slot->pulls) {
    if (pull.header.version > slot->state.version()) {
      std::swap(*later++, pull);
      continue;
    }
    if (weights.bytes == nullptr) weights = EncodeWeights(*slot);
    Emit(std::move(pull), v1::Block::APPLIED, 0, weights, *slot, effects);
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
    Rule::Center center;
    center.size = slot->local.size();
    center.weights = center_copy->data();
    rule_->Apply({Rule::Contribution{request.payload->data(), request.header.samples, payload.bytes->data()}},
                 center, nullptr);
  }
  Emit(std::move(request), fate, 0, std::move(payload), *slot, effects);
}

void Shard::Finish(Request request, v1::Block::Fate fate, uint64_t staleness, Payload payload,
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

void Shard::Emit(Request request, v1::Block::Fate fate, uint64_t staleness, Payload payload,
                 const BlockSlot& slot, Effects* effects) {
  if (payload.bytes != nullptr) bytes_pulled_ += payload.bytes->bytes();
  BlockHeader header = request.header;
  header.version = slot.state.version();
  header.samples = 0;
  header.staleness = staleness;
  header.fate = fate;
  header.scale = payload.scale;
  effects->answers->push_back({std::move(request.sink), header, std::move(payload.bytes)});
}

BufferPtr Shard::CopyWeights(const BlockSlot& slot) {
  BufferPtr copy = pool_.Get(slot.local.size());
  std::memcpy(copy->data(), weights_.data() + slot.local.begin, copy->bytes());
  return copy;
}

Shard::Payload Shard::EncodeWeights(const BlockSlot& slot) {
  if (pull_.is_plain()) return {CopyWeights(slot)};
  const int64_t size = slot.local.size();
  Payload payload{pool_.GetBytes(pull_.PayloadBytes(size))};
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

// -------------------------------------------------------------------------------------------- from the
// master

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
