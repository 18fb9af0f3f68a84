#include "server/master/lease_ledger.h"

#include <glog/logging.h>

#include <algorithm>

namespace catchment {

LeaseLedger::LeaseLedger(const Pace& pace, const Budget& budget, uint64_t train_samples,
                         const v1::MasterState& from)
    : batch_size_(pace.batch_size),
      budget_(budget.steps),
      source_(train_samples, budget.end, from),
      dealt_minibatches_(from.steps()) {}

std::optional<uint64_t> LeaseLedger::Prepare(uint64_t holder, const std::vector<uint64_t>& members) {
  if (AllDealt()) return std::nullopt;
  return 0;
}

Deal LeaseLedger::Next(uint64_t holder, const std::vector<uint64_t>& members) {
  const uint64_t left = MinibatchesLeft();
  CHECK_GT(left, 0u);
  const uint64_t share = std::max<uint64_t>(1, left / (2 * std::max<uint64_t>(1, members.size())));
  Holder& to = holders_[holder];
  Deal deal;
  deal.number = ++to.leases;
  for (uint64_t i = 0; i < std::min(kMinibatchesPerLease, share) && !AllDealt(); ++i) {
    deal.minibatches.push_back(source_.Take(batch_size_));
    to.open.push_back(deal.minibatches.back());
    open_samples_ += NumSamples(to.open.back());
    ++open_minibatches_;
    ++dealt_minibatches_;
  }
  return deal;
}

void LeaseLedger::MarkDone(uint64_t holder, uint64_t steps) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  Holder& of = found->second;
  while (of.done < steps && !of.open.empty()) FinishFirst(&of);
}

void LeaseLedger::FinishFirst(Holder* holder) {
  open_samples_ -= NumSamples(holder->open.front());
  --open_minibatches_;
  holder->open.pop_front();
  ++holder->done;
}

uint64_t LeaseLedger::GiveBack(uint64_t holder, uint64_t begun) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return 0;
  Holder& of = found->second;
  uint64_t repeated = 0;
  while (!of.open.empty()) {
    if (of.done < begun) repeated += NumSamples(of.open.front());
    source_.GiveBack(of.open.front());
    --dealt_minibatches_;
    FinishFirst(&of);
  }
  holders_.erase(found);
  return repeated;
}

bool LeaseLedger::HasWork(uint64_t holder) const {
  const auto found = holders_.find(holder);
  return !AllDealt() || (found != holders_.end() && !found->second.open.empty());
}

bool LeaseLedger::AllDealt() const { return budget_ ? dealt_minibatches_ >= *budget_ : source_.empty(); }

uint64_t LeaseLedger::MinibatchesLeft() const {
  if (budget_) return *budget_ - std::min(*budget_, dealt_minibatches_);
  return (source_.remaining() + batch_size_ - 1) / batch_size_;
}

v1::MasterState LeaseLedger::StateAt(uint64_t version) const {
  SpanPool pending = source_.pool();
  for (const auto& [incarnation, holder] : holders_) {
    for (const Step& minibatch : holder.open) pending.Add(minibatch);
  }
  v1::MasterState state;
  // Leases do not depend on it, but a synchronous algorithm that continues from this state counts from it.
  state.set_version(version);
  state.set_train_samples(source_.samples_per_epoch());
  for (const Span& span : pending.spans()) *state.add_pending() = ToProto(span);
  state.set_next_epoch(source_.next().epoch);
  state.set_next_position(source_.next().position);
  state.set_steps(dealt_minibatches_ - open_minibatches_);
  state.set_samples(done_samples());
  return state;
}

}  // namespace catchment
