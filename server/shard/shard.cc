#include "server/shard/shard.h"

#include <glog/logging.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

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
             SnapshotSink snapshot_sink, bool keeps_values, StandbyLog* log)
    : layout_(layout),
      index_(index),
      push_(Codec::ForPush(job.compression())),
      snapshot_sink_(std::move(snapshot_sink)),
      keeps_values_(keeps_values),
      context_(job, layout, index, std::move(contents.weights), std::move(contents.states), log),
      commanded_(job.algorithm()),
      last_checkpoint_(contents.checkpoint - (contents.may_take_again ? 1 : 0)) {
  context_.bytes_pushed = contents.bytes_pushed;
  context_.bytes_pulled = contents.bytes_pulled;
  for (auto& [worker, ledger] : contents.ledgers) {
    commanded_.workers.emplace(worker,
                               std::make_unique<WorkerRecord>(std::move(ledger), layout.num_blocks(index)));
  }
  const Range range = layout.shard(index);
  CHECK_EQ(static_cast<int64_t>(context_.weights.size()), range.size());
  std::vector<std::vector<float>>& states = context_.states;
  const int num_states = context_.rule->num_states();
  if (states.empty()) states = ZeroVectors(num_states, range.size());
  CHECK_EQ(static_cast<int>(states.size()), num_states);
  for (int b = 0; b < layout.num_blocks(index); ++b) {
    const Range block = layout.block(index, b);
    std::vector<int64_t> tensor_ends;
    if (layout.cuts() == Cuts::kBetweenTensors) tensor_ends = layout.TensorEnds(index, b);
    v1::BlockState state;
    if (!contents.blocks.empty()) state = std::move(contents.blocks[b]);
    context_.total_updates += state.version();
    blocks_.push_back(
        std::make_unique<Block>(&context_, b, Range{block.begin - range.begin, block.end - range.begin},
                                std::move(tensor_ends), commanded_.gate.groups(), std::move(state)));
    if (!contents.images.empty()) blocks_.back()->Restore(contents.images[b], commanded_);
  }
  if (keeps_values_) Return(Allocate());
}

Shard::~Shard() = default;

// ------------------------------------------------------------------------------------------------ requests

absl::Status Shard::ReadPayload(const PayloadView& bytes, float scale, Contribution* contribution) {
  if (bytes.size() == 0) return absl::OkStatus();
  const uint32_t block = contribution->block;
  RETURN_IF_ERROR(CheckBlock(block));
  const int64_t size = blocks_[block]->size();
  BufferPtr values = context_.pool.Get(size);
  const absl::StatusOr<bool> finite = push_.Decode(bytes, scale, absl::MakeSpan(values->data(), size));
  if (!finite.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " of shard ", index_, ": ", finite.status().message()));
  }
  contribution->values = std::move(values);
  contribution->finite = *finite;
  return absl::OkStatus();
}

absl::Status Shard::Handle(Request request, double now, std::vector<Answer>* answers) {
  RETURN_IF_ERROR(Check(request));
  if (const BufferPtr& values = request.contribution.values; values != nullptr) {
    context_.bytes_pushed += push_.PayloadBytes(values->size());
  }
  uint64_t due_checkpoint = 0;
  {
    ReaderLock lock(&roster_mu_);
    BlockCall call(commanded_, now, answers);
    RETURN_IF_ERROR(HandleLocked(std::move(request), &call));
    due_checkpoint = call.due_checkpoint;
  }
  // It begins before the answers go out: in synchronous mode no worker can begin the next version until then.
  if (due_checkpoint > 0) Checkpoint(due_checkpoint);
  return absl::OkStatus();
}

void Shard::Tick(double now, std::vector<Answer>* answers) {
  uint64_t due_checkpoint = 0;
  {
    ReaderLock lock(&roster_mu_);
    BlockCall call(commanded_, now, answers);
    for (const uint32_t block : context_.deadlines.TakeDue(now)) blocks_[block]->Tick(&call);
    due_checkpoint = call.due_checkpoint;
  }
  if (due_checkpoint > 0) Checkpoint(due_checkpoint);
}

void Shard::CountAnswer(double seconds) {
  constexpr double kWeight = 0.2;
  // Two threads that count at the same time may count as one.
  context_.answer_seconds = context_.answer_seconds + kWeight * (seconds - context_.answer_seconds);
}

absl::Status Shard::CheckBlock(uint32_t block) const {
  if (block < blocks_.size()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("block ", block, " of shard ", index_, ", which has ", blocks_.size(), " blocks"));
}

absl::Status Shard::Check(const Request& request) const {
  const v1::Block::Operation operation = request.envelope.operation;
  const uint32_t block = request.contribution.block;
  RETURN_IF_ERROR(CheckBlock(block));
  const bool pull = operation == v1::Block::PULL;
  const bool fits = context_.rule->has_answers() ? operation == v1::Block::EXCHANGE : IsPush(operation);
  if (!pull && !fits) {
    const std::string name = v1::Block::Operation_Name(operation);
    return absl::InvalidArgumentError(absl::StrCat("operation ",
                                                   name.empty() ? absl::StrCat(operation) : name,
                                                   " does not belong to this job's algorithm"));
  }
  const BufferPtr& values = request.contribution.values;
  const int64_t expected = pull ? 0 : blocks_[block]->size();
  const int64_t got = values == nullptr ? 0 : values->size();
  if (expected != got) {
    return absl::InvalidArgumentError(
        absl::StrCat("block ", block, " of shard ", index_, " expects ", expected, " values but got ", got));
  }
  return absl::OkStatus();
}

absl::Status Shard::HandleLocked(Request request, BlockCall* call) {
  Envelope& envelope = request.envelope;
  Contribution& contribution = request.contribution;
  ASSIGN_OR_RETURN(WorkerRecord* const worker, FindMember(envelope));
  Block& block = *blocks_[contribution.block];
  if (envelope.operation != v1::Block::PULL) {
    return block.Push(worker, std::move(envelope), std::move(contribution), call);
  }
  block.Pull(std::move(envelope), contribution.version, call);
  return absl::OkStatus();
}

absl::StatusOr<WorkerRecord*> Shard::FindMember(const Envelope& envelope) const {
  WorkerRecord* const worker = FindWorker(envelope.worker);
  if (worker == nullptr || !commanded_.gate.IsMember(envelope.worker, envelope.incarnation)) {
    return absl::AbortedError(absl::StrCat("worker ", envelope.worker, ", incarnation ", envelope.incarnation,
                                           ", is not, or no longer, a member of the job; register again"));
  }
  return worker;
}

WorkerRecord* Shard::FindWorker(uint32_t worker) const {
  const auto found = commanded_.workers.find(worker);
  return found == commanded_.workers.end() ? nullptr : found->second.get();
}

// ----------------------------------------------------------------------------------------------- connections

std::vector<Answer> Shard::Connected(uint32_t worker, uint64_t incarnation,
                                     const std::shared_ptr<AnswerSink>& sink) {
  std::vector<Answer> calls;
  ReaderLock lock(&roster_mu_);
  WorkerRecord* const record = FindWorker(worker);
  if (record == nullptr) return calls;
  {
    MutexLock worker_lock(&record->mu);
    if (record->ledger.incarnation() != incarnation) return calls;
    ++record->open_connections;
    record->sink = sink;
  }
  for (const Calls::Call& last : context_.calls.Last()) {
    if (sink != nullptr && blocks_[last.block]->version() == last.version)
      calls.push_back(MakeCall(sink, last));
  }
  return calls;
}

void Shard::Disconnected(uint32_t worker, uint64_t incarnation, bool by_peer) {
  ReaderLock lock(&roster_mu_);
  WorkerRecord* const record = FindWorker(worker);
  if (record == nullptr) return;
  MutexLock worker_lock(&record->mu);
  if (record->ledger.incarnation() != incarnation || record->open_connections == 0) return;
  --record->open_connections;
  record->closed_by_peer = by_peer;
}

bool Shard::IsMember(uint32_t worker, uint64_t incarnation) const {
  ReaderLock lock(&roster_mu_);
  return commanded_.gate.IsMember(worker, incarnation);
}

uint64_t Shard::generation() const {
  ReaderLock lock(&roster_mu_);
  return commanded_.gate.generation();
}

uint64_t Shard::PushUnderWay(uint32_t worker, uint64_t incarnation) const {
  ReaderLock lock(&roster_mu_);
  WorkerRecord* const record = FindWorker(worker);
  if (record == nullptr) return 0;
  MutexLock worker_lock(&record->mu);
  return record->ledger.incarnation() == incarnation ? record->ledger.under_way() : 0;
}

// ------------------------------------------------------------------------------------------- from the master

void Shard::SetRosters(const v1::ShardCommand& command, double now, std::vector<Answer>* answers) {
  uint64_t due_checkpoint = 0;
  {
    WriterLock lock(&roster_mu_);
    if (command.total_samples() > 0) commanded_.total_samples = command.total_samples();
    if (command.most_samples() > 0) commanded_.most_samples = command.most_samples();
    if (command.has_plateau_factor()) commanded_.plateau_factor = command.plateau_factor();
    if (command.step_seconds() > 0) commanded_.step_seconds = command.step_seconds();
    const std::vector<v1::Roster> rosters(command.rosters().begin(), command.rosters().end());
    if (!commanded_.gate.SetRosters(command.generation(), rosters)) return;
    commanded_.checkpoint = command.checkpoint();
    commanded_.checkpoint_updates = command.checkpoint_version() * blocks_.size();
    for (const v1::Roster& roster : rosters) AddWorkers(roster);
    BlockCall call(commanded_, now, answers);
    call.has_new_rosters = true;
    for (const std::unique_ptr<Block>& block : blocks_) block->TakeRosters(&call);
    const bool reached = context_.total_updates >= commanded_.checkpoint_updates;
    due_checkpoint = reached ? commanded_.checkpoint : call.due_checkpoint;
  }
  if (due_checkpoint > 0) Checkpoint(due_checkpoint);
}

void Shard::AddWorkers(const v1::Roster& roster) {
  for (const v1::Member& member : roster.members()) {
    std::unique_ptr<WorkerRecord>& worker = commanded_.workers[member.worker()];
    if (worker == nullptr) worker = std::make_unique<WorkerRecord>(layout_.FragmentsOfBlocks(index_));
    MutexLock worker_lock(&worker->mu);
    if (worker->ledger.incarnation() < member.incarnation()) worker->Begin(member.incarnation(), version());
  }
}

}  // namespace catchment
