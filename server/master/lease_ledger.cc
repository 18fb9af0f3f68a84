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
  Lease lease;
  lease.number = ++to.leases;
  for (uint64_t i = 0; i < std::min(kMinibatchesPerLease, share) && !AllDealt(); ++i) {
    lease.minibatches.push_back(source_.Take(batch_size_));
    open_samples_ += NumSamples(lease.minibatches.back());
    ++open_minibatches_;
    ++dealt_minibatches_;
  }
  to.open.push_back(lease);
  Deal deal;
  deal.number = lease.number;
  deal.minibatches.assign(lease.minibatches.begin(), lease.minibatches.end());
  return deal;
}

void LeaseLedger::MarkDone(uint64_t holder, uint64_t lease, uint64_t steps) {
  const auto found = holders_.find(holder);
  if (found == holders_.end() || lease > found->second.leases) return;
  std::deque<Lease>& open = found->second.open;
  for (Lease& one : open) {
    while (!one.minibatches.empty() && (one.number < lease || (one.number == lease && one.done < steps))) {
      FinishFirst(&one);
    }
  }
  while (!open.empty() && open.front().minibatches.empty()) open.pop_front();
}

void LeaseLedger::FinishFirst(Lease* lease) {
  open_samples_ -= NumSamples(lease->minibatches.front());
  --open_minibatches_;
  lease->minibatches.pop_front();
  ++lease->done;
}

void LeaseLedger::GiveBack(uint64_t holder) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  for (Lease& lease : found->second.open) {
    while (!lease.minibatches.empty()) {
      source_.GiveBack(lease.minibatches.front());
      --dealt_minibatches_;
      FinishFirst(&lease);
    }
  }
  holders_.erase(found);
}

bool LeaseLedger::AllDealt() const { return budget_ ? dealt_minibatches_ >= *budget_ : source_.empty(); }

uint64_t LeaseLedger::MinibatchesLeft() const {
  if (budget_) return *budget_ - std::min(*budget_, dealt_minibatches_);
  return (source_.remaining() + batch_size_ - 1) / batch_size_;
}

v1::MasterState LeaseLedger::StateAt(uint64_t version) const {
  SpanPool pending = source_.pool();
  for (const auto& [incarnation, holder] : holders_) {
    for (const Lease& lease : holder.open) {
      for (const Step& minibatch : lease.minibatches) pending.Add(minibatch);
    }
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
