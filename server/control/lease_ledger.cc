#include "server/control/lease_ledger.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/base/rounding.h"

namespace catchment {

LeaseLedger::LeaseLedger(const Pace& pace, const Budget& budget, uint64_t samples_per_epoch,
                         const v1::MasterState& from)
    : batch_size_(pace.batch_size),
      budget_(budget.steps),
      source_(samples_per_epoch, budget.end, pace.merges_last, from),
      assigned_minibatches_(from.steps()) {}

std::optional<uint64_t> LeaseLedger::Prepare(uint64_t holder, const std::vector<uint64_t>& members) {
  if (closed_ || AllAssigned()) return std::nullopt;
  return 0;
}

Assignment LeaseLedger::Next(uint64_t holder, const std::vector<uint64_t>& members) {
  const uint64_t left = MinibatchesLeft();
  CHECK_GT(left, 0u);
  const uint64_t share = std::max<uint64_t>(1, left / (2 * std::max<uint64_t>(1, members.size())));
  Holder& to = holders_[holder];
  Assignment assignment;
  assignment.number = ++to.leases;
  for (uint64_t i = 0; i < std::min(to.most, share) && !AllAssigned(); ++i) {
    assignment.minibatches.push_back(source_.Take(batch_size_));
    to.kept.push_back(assignment.minibatches.back());
    open_samples_ += NumSamples(to.kept.back());
    ++open_minibatches_;
    ++assigned_minibatches_;
  }
  return assignment;
}

void LeaseLedger::MarkDone(uint64_t holder, uint64_t steps) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  Holder& entry = found->second;
  while (entry.done < steps && entry.has_open()) FinishNext(&entry);
  if (!checkpoint_awaited_) Drop(&entry);
}

void LeaseLedger::FinishNext(Holder* holder) {
  open_samples_ -= NumSamples(holder->step(holder->done));
  --open_minibatches_;
  ++holder->done;
}

void LeaseLedger::Drop(Holder* holder) {
  while (holder->first < holder->done) {
    holder->kept.pop_front();
    ++holder->first;
  }
}

void LeaseLedger::AwaitCheckpoint(bool awaited) {
  checkpoint_awaited_ = awaited;
  std::erase_if(holders_, [](const auto& entry) { return entry.second.gone; });
  for (auto& [incarnation, holder] : holders_) Drop(&holder);
}

uint64_t LeaseLedger::Return(uint64_t holder, uint64_t begun) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return 0;
  Holder& entry = found->second;
  uint64_t repeated = 0;
  for (; entry.has_open(); entry.kept.pop_back()) {
    const Step& last = entry.kept.back();
    if (entry.end() <= begun) repeated += NumSamples(last);
    source_.Return(last);
    open_samples_ -= NumSamples(last);
    --open_minibatches_;
    --assigned_minibatches_;
  }
  entry.gone = true;
  if (!checkpoint_awaited_) holders_.erase(found);
  return repeated;
}

bool LeaseLedger::HasWork(uint64_t holder) const {
  const auto found = holders_.find(holder);
  return !AllAssigned() || (found != holders_.end() && found->second.has_open());
}

bool LeaseLedger::AllAssigned() const {
  return budget_ ? assigned_minibatches_ >= *budget_ : source_.empty();
}

uint64_t LeaseLedger::MinibatchesLeft() const {
  if (budget_) return *budget_ - std::min(*budget_, assigned_minibatches_);
  return CeilDivide(source_.remaining(), batch_size_);
}

v1::MasterState LeaseLedger::StateAt(const Cut& cut) const {
  SpanPool pending = source_.pool();
  uint64_t minibatches = 0, repeated = 0;
  for (const auto& [incarnation, holder] : holders_) {
    const uint64_t settled = cut.settled_steps ? cut.settled_steps(incarnation) : holder.done;
    const uint64_t begun = cut.begun_steps ? cut.begun_steps(incarnation) : 0;
    for (uint64_t i = std::max(settled, holder.first); i < holder.end(); ++i, ++minibatches) {
      pending.Add(holder.step(i));
      if (i < begun) repeated += NumSamples(holder.step(i));
    }
  }
  v1::MasterState state;
  state.set_repeated_samples(repeated);
  // Leases do not depend on the version, but a synchronous algorithm that resumes from this state does.
  state.set_version(cut.version);
  state.set_train_samples(source_.samples_per_epoch());
  for (const Span& span : pending.spans()) *state.add_pending() = ToProto(span);
  state.set_next_epoch(source_.next().epoch);
  state.set_next_position(source_.next().position);
  state.set_steps(assigned_minibatches_ - minibatches);
  state.set_samples(source_.taken() - (pending.num_samples() - source_.pool().num_samples()));
  return state;
}

void LeaseLedger::Save(v1::MasterImage* image) const {
  v1::LeaseLedgerImage* const saved = image->mutable_leases();
  *saved->mutable_source() = source_.Save();
  for (const auto& [incarnation, holder] : holders_) {
    v1::LeaseLedgerImage::Holder* const one = saved->add_holders();
    one->set_incarnation(incarnation);
    one->set_most(holder.most);
    one->set_leases(holder.leases);
    one->set_first(holder.first);
    one->set_done(holder.done);
    for (const Step& step : holder.kept) AddStep(step, one->mutable_kept());
    one->set_gone(holder.gone);
  }
  saved->set_checkpoint_awaited(checkpoint_awaited_);
  saved->set_closed(closed_);
  saved->set_assigned_minibatches(assigned_minibatches_);
  saved->set_open_minibatches(open_minibatches_);
  saved->set_open_samples(open_samples_);
}

void LeaseLedger::Restore(const v1::MasterImage& image) {
  const v1::LeaseLedgerImage& saved = image.leases();
  source_.Restore(saved.source());
  holders_.clear();
  for (const v1::LeaseLedgerImage::Holder& one : saved.holders()) {
    Holder& holder = holders_[one.incarnation()];
    holder.most = one.most();
    holder.leases = one.leases();
    holder.first = one.first();
    holder.done = one.done();
    const std::vector<Step> kept = StepsOf(one.kept());
    holder.kept.assign(kept.begin(), kept.end());
    holder.gone = one.gone();
  }
  checkpoint_awaited_ = saved.checkpoint_awaited();
  closed_ = saved.closed();
  assigned_minibatches_ = saved.assigned_minibatches();
  open_minibatches_ = saved.open_minibatches();
  open_samples_ = saved.open_samples();
}

}  // namespace catchment
