// What comes to a shard: requests are checked, and find their place.
#include <algorithm>

#include "absl/strings/str_cat.h"
#include "server/shard/shard.h"
#include "server/shard/shard_slots.h"

namespace catchment {
namespace {

bool IsPush(v1::Block::Operation operation) {
  return operation == v1::Block::PUSH || operation == v1::Block::PUSH_PULL;
}

}  // namespace

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
  Effects effects{answers, request.now};
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

void Shard::Connected(uint32_t worker, uint64_t incarnation) {
  ReaderLock lock(&roster_mu_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  WorkerSlot& slot = *found->second;
  MutexLock worker_lock(&slot.mu);
  if (slot.ledger.incarnation() == incarnation) ++slot.open_connections;
}

void Shard::Disconnected(uint32_t worker, uint64_t incarnation, bool by_peer) {
  ReaderLock lock(&roster_mu_);
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return;
  WorkerSlot& slot = *found->second;
  MutexLock worker_lock(&slot.mu);
  if (slot.ledger.incarnation() != incarnation || slot.open_connections == 0) return;
  --slot.open_connections;
  slot.closed_by_peer = by_peer;
}

void Shard::HandlePull(BlockSlot* slot, Request request, Effects* effects) {
  MutexLock lock(&slot->mu);
  if (request.header.version > slot->state.version()) {
    // A worker waits for one version at a time: another request of it is of a connection that has broken.
    const bool overtaken = std::any_of(slot->pulls.begin(), slot->pulls.end(), [&](const Request& pull) {
      return pull.worker == request.worker && pull.incarnation == request.incarnation &&
             pull.connection > request.connection;
    });
    if (overtaken) return;
    std::erase_if(slot->pulls, [&](const Request& pull) { return pull.worker == request.worker; });
    slot->pulls.push_back(std::move(request));
    return;
  }
  Emit(std::move(request), v1::Block::APPLIED, 0, EncodeWeights(*slot), slot->state.version(), effects);
}

absl::Status Shard::HandlePush(BlockSlot* slot, WorkerSlot* worker, Request request, Effects* effects) {
  const BlockHeader& header = request.header;
  MutexLock lock(&slot->mu);
  const absl::StatusOr<PushLedger::Seen> seen = Look(header, worker);
  if (!seen.ok()) return seen.status();
  if (*seen == PushLedger::Seen::kDone) {
    HandleDuplicate(slot, std::move(request), effects);
    return absl::OkStatus();
  }
  if (header.version > slot->state.version()) {
    return absl::InvalidArgumentError(absl::StrCat("a contribution computed at version ", header.version,
                                                   " of block ", header.block, ", which is at ",
                                                   slot->state.version()));
  }
  {
    MutexLock worker_lock(&worker->mu);
    absl::Status status = worker->ledger.Arrived(header.sequence, header.block, header.steps);
    if (!status.ok()) return status;
    request.sent = worker->sent[header.block];
  }
  if (IsLate(*slot, request)) {
    slot->state.set_late_samples(slot->state.late_samples() + header.samples);
    Dismiss(slot, worker, std::move(request), v1::Block::LATE, effects);
  } else if (gate_.in_groups()) {
    const uint32_t group = gate_.GroupOf(request.worker);
    const Gate::Arrival arrival{request.worker, request.incarnation};
    Group& members = slot->groups[group];
    gate_.Count(arrival, members.Add(std::move(request)), &members.tally());
    AdvanceGroup(slot, group, effects);
  } else if (gate_.answers_at_once()) {
    Accept(slot, worker, std::move(request), effects);
  } else {
    slot->queue.Push(std::move(request));
    AdvanceQueue(slot, effects);
  }
  return absl::OkStatus();
}

absl::StatusOr<PushLedger::Seen> Shard::Look(const BlockHeader& header, WorkerSlot* worker) {
  MutexLock lock(&worker->mu);
  absl::StatusOr<PushLedger::Seen> seen = worker->ledger.Look(header.sequence, header.block);
  if (seen.ok() && *seen == PushLedger::Seen::kDone) worker->ledger.CountDuplicate();
  return seen;
}

void Shard::HandleDuplicate(BlockSlot* slot, Request request, Effects* effects) {
  for (BlockSlot::Held& held : slot->held) {
    Request& first = held.contribution.request;
    if (first.worker != request.worker || first.incarnation != request.incarnation) continue;
    // The connection that it was to be answered over has broken.
    if (first.header.sequence == request.header.sequence) {
      if (request.connection < first.connection) return;
      first.sink = std::move(request.sink);
      first.connection = request.connection;
      return;
    }
  }
  AnswerOnly(slot, std::move(request), v1::Block::DUPLICATE, effects);
}

bool Shard::IsLate(const BlockSlot& slot, const Request& request) const {
  return gate_.in_groups() && request.header.version < slot.groups[gate_.GroupOf(request.worker)].base();
}

void Shard::Dismiss(BlockSlot* slot, WorkerSlot* worker, Request request, v1::Block::Fate fate,
                    Effects* effects) {
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Done(request.header.sequence, request.header.block, fate, 0);
  }
  AnswerOnly(slot, std::move(request), fate, effects);
}

void Shard::Accept(BlockSlot* slot, WorkerSlot* worker, Request request, Effects* effects) {
  if (!request.finite) return Dismiss(slot, worker, std::move(request), v1::Block::NON_FINITE, effects);
  {
    MutexLock lock(&worker->mu);
    worker->ledger.Accept(request.header.sequence, request.header.block);
  }
  Request answered{request.worker, request.incarnation, request.header, nullptr, std::move(request.sink)};
  slot->queue.Push(std::move(request));
  AdvanceQueue(slot, effects);
  AnswerOnly(slot, std::move(answered), v1::Block::ACCEPTED, effects);
}

}  // namespace catchment
