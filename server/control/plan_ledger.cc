#include "server/control/plan_ledger.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/base/rounding.h"

namespace catchment {

bool PlanLedger::Plan::abandoned() const {
  return std::all_of(participants.begin(), participants.end(),
                     [](const Participant& participant) { return participant.gone; });
}

Step PlanLedger::Plan::Part(uint64_t step, uint64_t rank) const {
  const uint64_t samples = NumSamples(steps[step]);
  return Slice(steps[step], samples * rank / participants.size(), samples * (rank + 1) / participants.size());
}

uint64_t PlanLedger::Plan::PartSize(uint64_t step, uint64_t rank) const {
  const uint64_t samples = NumSamples(steps[step]);
  return samples * (rank + 1) / participants.size() - samples * rank / participants.size();
}

void PlanLedger::Holder::ForgetDone() {
  for (; leases.size() > 1 && forgotten < done; ++forgotten) leases.pop_front();
}

PlanLedger::PlanLedger(const Pace& pace, const Budget& budget, uint64_t samples_per_epoch,
                       const v1::MasterState& from)
    : batch_size_(pace.batch_size),
      steps_per_version_(pace.steps_per_version),
      contributes_first_(pace.contributes_first),
      unsent_steps_(pace.unsent_steps),
      budget_(budget.steps),
      source_(samples_per_epoch, budget.end, pace.merges_last, from),
      next_step_(from.version() * pace.steps_per_version),
      budget_steps_(from.steps()) {}

std::optional<uint64_t> PlanLedger::Prepare(uint64_t holder, const std::vector<uint64_t>& members) {
  const Plan* plan = NextPlan(holder);
  if (plan == nullptr) {
    if (closed_ || AllAssigned() || !MayAskForPlan(holder)) return std::nullopt;
    MakePlan(members);
    plan = NextPlan(holder);
    CHECK(plan != nullptr) << "holder " << holder << " is not among the members";
  }
  return plan->first_step / steps_per_version_;
}

Assignment PlanLedger::Next(uint64_t holder, const std::vector<uint64_t>& members) {
  const Plan* plan = NextPlan(holder);
  CHECK(plan != nullptr) << "Prepare has returned no version for holder " << holder;
  Holder& to = holders_[holder];
  to.leases.push_back(plan->first_step);
  to.ForgetDone();
  Assignment assignment;
  assignment.number = to.granted();
  assignment.first_step = plan->first_step;
  assignment.first_version = plan->first_step / steps_per_version_;
  assignment.last = plan == &plans_.back() && AllAssigned();
  for (uint64_t rank = 0; rank < plan->participants.size(); ++rank) {
    if (plan->participants[rank].holder != holder) continue;
    for (uint64_t i = 0; i < plan->steps.size(); ++i) assignment.minibatches.push_back(plan->Part(i, rank));
  }
  return assignment;
}

PlanLedger::Plan* PlanLedger::PlanAt(uint64_t first_step) {
  const auto found = std::lower_bound(plans_.begin(), plans_.end(), first_step,
                                      [](const Plan& plan, uint64_t step) { return plan.first_step < step; });
  return found != plans_.end() && found->first_step == first_step ? &*found : nullptr;
}

const PlanLedger::Plan* PlanLedger::NextPlan(uint64_t holder) const {
  const auto found = holders_.find(holder);
  const Plan* next = nullptr;
  for (auto plan = plans_.rbegin(); plan != plans_.rend(); ++plan) {
    if (found != holders_.end() && !found->second.leases.empty() &&
        plan->first_step <= found->second.leases.back()) {
      break;
    }
    for (const Participant& participant : plan->participants) {
      if (participant.holder == holder) next = &*plan;
    }
  }
  return next;
}

bool PlanLedger::MayAskForPlan(uint64_t holder) const {
  if (plans_.empty() || plans_.back().abandoned()) return true;
  const std::vector<Participant>& participants = plans_.back().participants;
  return std::any_of(participants.begin(), participants.end(),
                     [holder](const Participant& participant) { return participant.holder == holder; });
}

void PlanLedger::MakePlan(const std::vector<uint64_t>& members) {
  Plan plan;
  plan.first_step = next_step_;
  plan.budget_steps = budget_steps_;
  for (uint64_t member : members) plan.participants.push_back({member});
  const uint64_t steps = RoundUp(kStepsPerPlan, steps_per_version_);
  for (uint64_t i = 0; i < steps && !AllAssigned(); ++i) {
    plan.steps.push_back(source_.Take(members.size() * batch_size_));
    open_samples_ += NumSamples(plan.steps.back());
    ++budget_steps_;
  }
  plan.steps.resize(RoundUp(plan.steps.size(), steps_per_version_));
  next_step_ = plan.end_step();
  budget_steps_ = plan.budget_steps + plan.steps.size();
  plans_.push_back(std::move(plan));
}

PlanLedger::Participant* PlanLedger::FindParticipant(uint64_t holder, Plan* plan, uint64_t* rank) {
  for (*rank = 0; *rank < plan->participants.size(); ++*rank) {
    if (plan->participants[*rank].holder == holder) return &plan->participants[*rank];
  }
  LOG(FATAL) << "holder " << holder << " does not participate in the plan of its lease";
}

void PlanLedger::MarkDone(uint64_t holder, uint64_t steps) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  Holder& entry = found->second;
  while (entry.done < entry.granted() && entry.done_steps < steps) {
    Plan* const plan = PlanAt(entry.leases[entry.done - entry.forgotten]);
    CHECK(plan != nullptr) << "the plan of a lease that holder " << holder
                           << " has not finished was forgotten";
    uint64_t rank;
    Participant* const participant = FindParticipant(holder, plan, &rank);
    MarkStepsDone(*plan, rank, steps - entry.done_steps, participant);
    if (participant->done < plan->steps.size()) return;
    entry.done_steps += plan->steps.size();
    ++entry.done;
    entry.ForgetDone();
  }
}

void PlanLedger::MarkStepsDone(const Plan& plan, uint64_t rank, uint64_t steps, Participant* participant) {
  if (participant->gone) return;
  for (; participant->done < std::min<uint64_t>(steps, plan.steps.size()); ++participant->done) {
    open_samples_ -= plan.PartSize(participant->done, rank);
  }
}

void PlanLedger::SetLeaving(uint64_t holder) {
  for (Plan& plan : plans_) {
    for (Participant& participant : plan.participants) participant.leaving |= participant.holder == holder;
  }
}

uint64_t PlanLedger::Return(uint64_t holder, uint64_t begun) {
  const auto found = holders_.find(holder);
  // The holder's steps before the plan. With fragments it has begun steps of several plans.
  uint64_t before = found == holders_.end() ? 0 : found->second.done_steps;
  uint64_t repeated = 0;
  for (Plan& plan : plans_) {
    for (uint64_t rank = 0; rank < plan.participants.size(); ++rank) {
      if (plan.participants[rank].holder != holder || plan.participants[rank].gone) continue;
      repeated += ReturnShare(&plan, rank, begun - std::min(begun, before));
      if (plan.participants[rank].done < plan.steps.size()) before += plan.steps.size();
    }
  }
  holders_.erase(holder);
  return repeated;
}

uint64_t PlanLedger::ReturnShare(Plan* plan, uint64_t rank, uint64_t begun) {
  Participant& participant = plan->participants[rank];
  uint64_t repeated = 0;
  for (uint64_t i = participant.done; i < plan->steps.size(); ++i) {
    source_.Return(plan->Part(i, rank));
    open_samples_ -= plan->PartSize(i, rank);
    if (i < begun) repeated += plan->PartSize(i, rank);
  }
  participant.gone = true;
  if (plan->abandoned()) Abandon(*plan);
  return repeated;
}

void PlanLedger::Abandon(const Plan& plan) {
  uint64_t reached = 0;
  for (const Participant& participant : plan.participants) reached = std::max(reached, participant.done);
  const uint64_t skipped = plan.steps.size() - reached;
  budget_steps_ -= skipped;
  for (Plan& later : plans_) {
    if (later.first_step > plan.first_step) later.budget_steps -= skipped;
  }
}

bool PlanLedger::HasWork(uint64_t holder) const {
  for (auto plan = plans_.rbegin(); plan != plans_.rend(); ++plan) {
    for (const Participant& participant : plan->participants) {
      if (participant.holder == holder && !participant.gone && participant.done < plan->steps.size())
        return true;
    }
  }
  return false;
}

bool PlanLedger::AllAssigned() const { return budget_ ? budget_steps_ >= *budget_ : source_.empty(); }

uint64_t PlanLedger::BudgetStepsAt(uint64_t step) const {
  uint64_t steps = budget_steps_;
  for (auto plan = plans_.rbegin(); plan != plans_.rend() && plan->end_step() > step; ++plan) {
    const uint64_t into = step > plan->first_step ? step - plan->first_step : 0;
    steps = std::min(steps, plan->budget_steps + into);
  }
  return steps;
}

uint64_t PlanLedger::StepsInCenter(uint64_t version) const {
  if (contributes_first_ && version > 0) --version;
  const uint64_t steps = version * steps_per_version_;
  // All fragments are sent at the end of the last plan.
  const bool at_end = AllAssigned() && (plans_.empty() || plans_.back().end_step() <= steps);
  return at_end ? steps : steps - std::min(steps, unsent_steps_);
}

v1::MasterState PlanLedger::StateAt(const Cut& cut) const {
  const uint64_t in_center = StepsInCenter(cut.version);
  const uint64_t at_version = cut.version * steps_per_version_;
  // Some fragments have steps that others have not sent yet.
  const uint64_t begun = unsent_steps_ > 0 ? at_version : in_center;
  uint64_t done = at_version;  // by all members
  uint64_t repeated = 0;
  SpanPool pending = source_.pool();
  for (const Plan& plan : plans_) {
    for (uint64_t rank = 0; rank < plan.participants.size(); ++rank) {
      const Participant& participant = plan.participants[rank];
      const bool saved = cut.state_is_saved && cut.state_is_saved(participant.holder);
      const uint64_t step = saved ? at_version : in_center;
      if (!saved && plan.first_step < at_version && plan.end_step() > in_center) done = in_center;
      const uint64_t end = participant.gone ? participant.done : plan.steps.size();
      uint64_t begin = step > plan.first_step ? step - plan.first_step : 0;
      // The version may have been made without this participant.
      if (participant.leaving && !participant.gone) begin = std::min(begin, participant.done);
      for (uint64_t i = begin; i < end; ++i) {
        pending.Add(plan.Part(i, rank));
        if (plan.first_step + i < begun) repeated += plan.PartSize(i, rank);
      }
    }
  }
  v1::MasterState state;
  state.set_version(cut.version);
  state.set_train_samples(source_.samples_per_epoch());
  for (const Span& span : pending.spans()) *state.add_pending() = ToProto(span);
  state.set_next_epoch(source_.next().epoch);
  state.set_next_position(source_.next().position);
  state.set_steps(BudgetStepsAt(done));
  state.set_repeated_samples(repeated);
  state.set_samples(source_.next().epoch * source_.samples_per_epoch() + source_.next().position -
                    pending.num_samples());
  return state;
}

void PlanLedger::Forget(uint64_t version) {
  const auto settled = [](const Plan& plan) {
    return std::all_of(plan.participants.begin(), plan.participants.end(),
                       [&plan](const Participant& participant) {
                         return participant.gone || participant.done == plan.steps.size();
                       });
  };
  // The last plan is kept, because only its participants may request the next one.
  while (plans_.size() > 1 && plans_.front().end_step() <= StepsInCenter(version) &&
         settled(plans_.front())) {
    plans_.pop_front();
  }
}

void PlanLedger::Save(v1::MasterImage* image) const {
  v1::PlanLedgerImage* const saved = image->mutable_plans();
  *saved->mutable_source() = source_.Save();
  for (const Plan& plan : plans_) {
    v1::PlanLedgerImage::Plan* const one = saved->add_plans();
    one->set_first_step(plan.first_step);
    one->set_budget_steps(plan.budget_steps);
    for (const Step& step : plan.steps) AddStep(step, one->mutable_steps());
    for (const Participant& participant : plan.participants) {
      v1::PlanLedgerImage::Participant* const added = one->add_participants();
      added->set_holder(participant.holder);
      added->set_done(participant.done);
      added->set_leaving(participant.leaving);
      added->set_gone(participant.gone);
    }
  }
  for (const auto& [incarnation, holder] : holders_) {
    v1::PlanLedgerImage::Holder* const one = saved->add_holders();
    one->set_incarnation(incarnation);
    one->mutable_leases()->Add(holder.leases.begin(), holder.leases.end());
    one->set_done(holder.done);
    one->set_done_steps(holder.done_steps);
    one->set_forgotten(holder.forgotten);
  }
  saved->set_next_step(next_step_);
  saved->set_budget_steps(budget_steps_);
  saved->set_open_samples(open_samples_);
  saved->set_closed(closed_);
}

void PlanLedger::Restore(const v1::MasterImage& image) {
  const v1::PlanLedgerImage& saved = image.plans();
  source_.Restore(saved.source());
  plans_.clear();
  for (const v1::PlanLedgerImage::Plan& one : saved.plans()) {
    Plan& plan = plans_.emplace_back();
    plan.first_step = one.first_step();
    plan.budget_steps = one.budget_steps();
    plan.steps = StepsOf(one.steps());
    for (const v1::PlanLedgerImage::Participant& participant : one.participants())
      plan.participants.push_back(
          {participant.holder(), participant.done(), participant.leaving(), participant.gone()});
  }
  holders_.clear();
  for (const v1::PlanLedgerImage::Holder& one : saved.holders()) {
    holders_[one.incarnation()] = {
        {one.leases().begin(), one.leases().end()}, one.forgotten(), one.done(), one.done_steps()};
  }
  next_step_ = saved.next_step();
  budget_steps_ = saved.budget_steps();
  open_samples_ = saved.open_samples();
  closed_ = saved.closed();
}

}  // namespace catchment
