#include "server/shard/replica.h"

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/job/algorithm_facts.h"
#include "server/rules/closed_loop_momentum.h"
#include "server/rules/rule.h"

namespace catchment {
namespace {

constexpr size_t kStatePartBytes = 1 << 20;
// With the most workers, the longest names and the most metrics a state has about a fifth of this.
constexpr size_t kMaxStateBytes = 512 << 20;

// Returns the bytes of a part that is a state of the master.
std::string* StateOf(v1::StandbyPart* part) {
  return part->has_master() ? part->mutable_master() : part->mutable_evaluations();
}

absl::Status OutOfOrder(const char* part) {
  return absl::InvalidArgumentError(absl::StrCat("a part of a shard's copy, ", part, ", is out of order"));
}

}  // namespace

bool SendInParts(const v1::StandbyPart& state, absl::FunctionRef<bool(const v1::StandbyPart&)> send) {
  const std::string& bytes = state.has_master() ? state.master() : state.evaluations();
  v1::StandbyPart part;
  size_t begin = 0;
  do {
    (state.has_master() ? *part.mutable_master() : *part.mutable_evaluations()) =
        bytes.substr(begin, kStatePartBytes);
    begin += kStatePartBytes;
    part.set_continues(begin < bytes.size());
    if (!part.continues()) part.set_number(state.number());
    if (!send(part)) return false;
  } while (part.continues());
  return true;
}

Replica::Replica(const v1::Job& job, const ParameterLayout& layout, int index)
    : layout_(layout),
      index_(index),
      num_states_(MakeRule(job)->num_states()),
      bounded_(StalenessBound(job.algorithm().consistency()).has_value()) {}

void Replica::BeginStream() {
  arriving_.reset();
  vectors_.clear();
  state_.Clear();
}

absl::Status Replica::Add(v1::StandbyPart part) {
  if (state_.part_case() != v1::StandbyPart::PART_NOT_SET && state_.part_case() != part.part_case())
    return OutOfOrder("the rest of the master's state");
  switch (part.part_case()) {
    case v1::StandbyPart::kVector:
      AddVector(absl::Cord(std::move(*part.mutable_vector())));
      return absl::OkStatus();
    case v1::StandbyPart::kImage:
      arriving_.emplace();
      arriving_->checkpoint = part.image().checkpoint();
      ledgers_left_ = part.image().ledgers();
      return absl::OkStatus();
    case v1::StandbyPart::kLedger:
      return AddLedger(part.ledger());
    case v1::StandbyPart::kBlock:
      if (arriving_) return AddBlock(part.block(), &*arriving_);
      if (!current_) return OutOfOrder("a change");
      number_ = part.number();
      return AddBlock(part.block(), &*current_);
    case v1::StandbyPart::kCheckpoint:
      if (arriving_ || !current_) return OutOfOrder("a checkpoint");
      number_ = part.number();
      current_->checkpoint = part.checkpoint();
      return absl::OkStatus();
    case v1::StandbyPart::kComplete:
      return Complete(part.number());
    case v1::StandbyPart::kMaster:
    case v1::StandbyPart::kEvaluations:
      return AddState(std::move(part));
    case v1::StandbyPart::PART_NOT_SET:
      break;
  }
  return absl::InvalidArgumentError("a part of a shard's copy is of an unknown kind");
}

absl::Status Replica::AddLedger(const v1::WorkerLedger& saved) {
  const bool expected = arriving_ && ledgers_left_ > 0 && arriving_->ledgers.count(saved.worker()) == 0;
  if (!expected || saved.worker() >= kMaxWorkers) return OutOfOrder("a ledger");
  PushLedger ledger(layout_.FragmentsOfBlocks(index_));
  RETURN_IF_ERROR(ledger.Restore(saved));
  arriving_->ledgers.emplace(saved.worker(), std::move(ledger));
  --ledgers_left_;
  return absl::OkStatus();
}

absl::Status Replica::Complete(uint64_t number) {
  const auto blocks = static_cast<size_t>(layout_.num_blocks(index_));
  const bool whole = arriving_ && ledgers_left_ == 0 && arriving_->blocks.size() == blocks;
  if (!whole) return OutOfOrder("the end of an image");
  current_ = std::exchange(arriving_, std::nullopt);
  number_ = number;
  return absl::OkStatus();
}

absl::Status Replica::AddState(v1::StandbyPart part) {
  if (index_ != 0 || (!arriving_ && !current_)) return OutOfOrder("the master's state");
  if (state_.part_case() == v1::StandbyPart::PART_NOT_SET) {
    state_ = part;
  } else {
    StateOf(&state_)->append(*StateOf(&part));
  }
  if (StateOf(&state_)->size() > kMaxStateBytes)
    return absl::InvalidArgumentError(
        absl::StrCat("the master's state has more than ", kMaxStateBytes, " bytes"));
  if (part.continues()) return absl::OkStatus();
  ReplicaImage& image = arriving_ ? *arriving_ : *current_;
  (part.has_master() ? image.master : image.evaluations) = std::move(*StateOf(&state_));
  state_.Clear();
  if (!arriving_ && part.number() > 0) number_ = part.number();
  return absl::OkStatus();
}

// Memory is kept for each index of a worker.
absl::Status Replica::CheckWorkers(const v1::BlockChange& change) const {
  const auto all_below = [](const auto& entries) {
    return std::all_of(entries.begin(), entries.end(),
                       [](const auto& entry) { return entry.worker() < kMaxWorkers; });
  };
  const auto is_below = [](uint32_t worker) { return worker < kMaxWorkers; };
  if (all_below(change.settlements()) && all_below(change.accepted()) && all_below(change.finished()) &&
      std::all_of(change.sent().begin(), change.sent().end(), is_below) &&
      std::all_of(change.sent_before().begin(), change.sent_before().end(), is_below)) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat("block ", change.block(), " of shard ", index_,
                                                 " names a worker whose index is not below ", kMaxWorkers));
}

absl::Status Replica::CheckVectors(const v1::BlockChange& change) const {
  const size_t values = change.has_values() ? 1 + num_states_ : 0;
  const size_t with_sent = std::count_if(change.accepted().begin(), change.accepted().end(),
                                         [](const auto& accepted) { return accepted.has_sent(); });
  const size_t before = std::count_if(change.group_updates().begin(), change.group_updates().end(),
                                      [](const auto& update) { return update.has_weights(); });
  const size_t expected = values + change.accepted_size() + with_sent + change.sent_before_size() + before;
  const size_t bytes = layout_.block(index_, static_cast<int>(change.block())).size() * sizeof(float);
  const bool sizes_fit = std::all_of(vectors_.begin(), vectors_.end(),
                                     [bytes](const absl::Cord& vector) { return vector.size() == bytes; });
  if (vectors_.size() == expected && sizes_fit) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("block ", change.block(), " of shard ", index_,
                                                 " has different vectors than it describes"));
}

absl::Status Replica::AddBlock(const v1::BlockChange& change, ReplicaImage* image) {
  const bool in_image = image == (arriving_ ? &*arriving_ : nullptr);
  const bool next = ledgers_left_ == 0 && change.block() == image->blocks.size();
  if (change.block() >= static_cast<uint32_t>(layout_.num_blocks(index_)) || (in_image && !next))
    return OutOfOrder("a block");
  RETURN_IF_ERROR(CheckWorkers(change));
  RETURN_IF_ERROR(CheckVectors(change));
  if (in_image && !change.has_values()) return OutOfOrder("a block's change without its values");
  for (const v1::GroupUpdate& update : change.group_updates()) {
    const bool has_base = update.group() < static_cast<uint32_t>(change.group_bases_size());
    if (!has_base || (in_image && !update.has_weights())) return OutOfOrder("a group's update");
  }
  if (in_image) image->blocks.emplace_back();
  BlockImage& block = image->blocks[change.block()];
  const absl::Cord before = change.group_updates().empty() ? absl::Cord() : block.weights;
  block.state = change.state();
  block.group_bases.assign(change.group_bases().begin(), change.group_bases().end());
  if (change.has_values()) {
    block.weights = NextVector();
    block.states.resize(num_states_);
    for (absl::Cord& state : block.states) state = NextVector();
  }
  for (const v1::AcceptedContribution& accepted : change.accepted()) {
    BlockImage::Accepted& added = block.accepted.emplace_back();
    added.contribution = accepted;
    added.values = NextVector();
    const auto sent = block.sent.find(accepted.worker());
    if (sent != block.sent.end()) added.sent = sent->second;
    if (accepted.has_sent()) added.sent = NextVector();
  }
  if (change.taken() > block.accepted.size())
    return absl::InvalidArgumentError(absl::StrCat("block ", change.block(), " takes more than it accepted"));
  block.accepted.erase(block.accepted.begin(), block.accepted.begin() + change.taken());
  for (const uint32_t worker : change.sent_before()) block.sent[worker] = NextVector();
  for (const uint32_t worker : change.sent()) block.sent[worker] = block.weights;
  for (const v1::FinishedPush& finished : change.finished()) block.finished[finished.worker()] = finished;
  for (const v1::GroupUpdate& update : change.group_updates())
    block.group_updates[update.group()] = {update.has_weights() ? NextVector() : before,
                                           update.contributions()};
  for (const v1::MomentumPoint& point : change.momentum_points())
    block.momentum_points[point.version()] = point;
  while (block.momentum_points.size() > ClosedLoopMomentum::kVersions)
    block.momentum_points.erase(block.momentum_points.begin());
  for (const v1::Settlement& settlement : change.settlements()) Record(settlement, change.block(), image);
  image->bytes_pushed = change.bytes_pushed();
  image->bytes_pulled = change.bytes_pulled();
  return absl::OkStatus();
}

// The ledger of the original has seen the same calls in the same order.
void Replica::Record(const v1::Settlement& settlement, uint32_t block, ReplicaImage* image) const {
  const uint64_t incarnation = settlement.incarnation();
  const uint64_t sequence = settlement.sequence();
  PushLedger& ledger =
      image->ledgers.try_emplace(settlement.worker(), layout_.FragmentsOfBlocks(index_)).first->second;
  if (ledger.incarnation() < incarnation) ledger.Begin(incarnation);
  if (ledger.incarnation() == incarnation) {
    ledger.Arrived(sequence, block, settlement.steps()).IgnoreError();
    ledger.Accept(sequence, block);
  }
  if (settlement.fate() == v1::Block::ACCEPTED) return;
  std::optional<Lag> lag;
  if (settlement.has_lag())
    lag = Lag{settlement.lag_seconds(), settlement.squared_gap(), settlement.gap_values()};
  ledger.Settle(incarnation, sequence, block, settlement.fate(), settlement.staleness(), lag);
  if (!bounded_ || settlement.fate() == v1::Block::LATE) return;
  v1::FinishedPush& finished = image->blocks[block].finished[settlement.worker()];
  finished.set_worker(settlement.worker());
  finished.set_incarnation(incarnation);
  finished.set_sequence(sequence);
}

absl::Cord Replica::NextVector() {
  absl::Cord vector = std::move(vectors_.front());
  vectors_.pop_front();
  return vector;
}

void Replica::Export(absl::FunctionRef<bool(const v1::StandbyPart&)> send) const {
  bool more = true;
  const auto send_vector = [&](const absl::Cord& vector) {
    v1::StandbyPart part;
    part.set_vector(std::string(vector));
    more = more && send(part);
  };
  v1::StandbyPart part;
  *part.mutable_image()->mutable_checkpoint() = current_->checkpoint;
  part.mutable_image()->set_ledgers(current_->ledgers.size());
  more = send(part);
  for (const auto& [worker, ledger] : current_->ledgers) {
    *part.mutable_ledger() = ledger.Save(worker);
    more = more && send(part);
  }
  for (size_t b = 0; b < current_->blocks.size(); ++b) {
    const BlockImage& block = current_->blocks[b];
    v1::BlockChange& whole = *part.mutable_block();
    whole.set_block(static_cast<uint32_t>(b));
    *whole.mutable_state() = block.state;
    whole.mutable_group_bases()->Assign(block.group_bases.begin(), block.group_bases.end());
    whole.set_has_values(true);
    send_vector(block.weights);
    for (const absl::Cord& state : block.states) send_vector(state);
    whole.clear_accepted();
    for (const BlockImage::Accepted& accepted : block.accepted) {
      *whole.add_accepted() = accepted.contribution;
      whole.mutable_accepted()->rbegin()->set_has_sent(!accepted.sent.empty());
      send_vector(accepted.values);
      if (!accepted.sent.empty()) send_vector(accepted.sent);
    }
    whole.clear_sent_before();
    for (const auto& [worker, weights] : block.sent) {
      whole.add_sent_before(worker);
      send_vector(weights);
    }
    whole.clear_finished();
    for (const auto& [worker, finished] : block.finished) *whole.add_finished() = finished;
    whole.clear_group_updates();
    for (const auto& [group, update] : block.group_updates) {
      v1::GroupUpdate& added = *whole.add_group_updates();
      added.set_group(group);
      added.set_contributions(update.contributions);
      added.set_has_weights(true);
      send_vector(update.before);
    }
    whole.clear_momentum_points();
    for (const auto& [version, point] : block.momentum_points) *whole.add_momentum_points() = point;
    whole.set_bytes_pushed(current_->bytes_pushed);
    whole.set_bytes_pulled(current_->bytes_pulled);
    more = more && send(part);
  }
  if (more && !current_->evaluations.empty()) {
    part.set_evaluations(current_->evaluations);
    more = SendInParts(part, send);
  }
  if (more && !current_->master.empty()) {
    part.set_master(current_->master);
    more = SendInParts(part, send);
  }
  part.set_complete(true);
  part.set_number(number_);
  if (more) send(part);
}

ShardContents Replica::TakeContents() {
  ShardContents contents;
  const Range shard = layout_.shard(index_);
  contents.weights.resize(shard.size());
  contents.states = ZeroVectors(num_states_, shard.size());
  uint64_t updates = 0;
  for (size_t b = 0; b < current_->blocks.size(); ++b) {
    BlockImage& block = current_->blocks[b];
    const int64_t begin = layout_.block(index_, static_cast<int>(b)).begin - shard.begin;
    CopyVector(std::exchange(block.weights, {}), contents.weights.data() + begin);
    for (size_t s = 0; s < num_states_; ++s)
      CopyVector(std::exchange(block.states[s], {}), contents.states[s].data() + begin);
    updates += block.state.version();
    contents.blocks.push_back(block.state);
  }
  contents.images = std::move(current_->blocks);
  contents.ledgers = std::move(current_->ledgers);
  contents.bytes_pushed = current_->bytes_pushed;
  contents.bytes_pulled = current_->bytes_pulled;
  contents.checkpoint = current_->checkpoint.number();
  contents.may_take_again = contents.checkpoint > 0 && current_->checkpoint.updates() == updates;
  current_.reset();
  return contents;
}

}  // namespace catchment
