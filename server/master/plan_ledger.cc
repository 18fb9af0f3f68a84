#include "server/master/plan_ledger.h"

#include <glog/logging.h>

#include <algorithm>

#include "common/rounding.h"

namespace catchment {

bool PlanLedger::Plan::abandoned() const {
  return std::all_of(seats.begin(), seats.end(), [](const Seat& seat) { return seat.gone; });
}

Step PlanLedger::Plan::Part(uint64_t step, uint64_t rank) const {
  const uint64_t samples = NumSamples(steps[step]);
  return Slice(steps[step], samples * rank / seats.size(), samples * (rank + 1) / seats.size());
}

uint64_t PlanLedger::Plan::PartSize(uint64_t step, uint64_t rank) const {
  const uint64_t samples = NumSamples(steps[step]);
  return samples * (rank + 1) / seats.size() - samples * rank / seats.size();
}

PlanLedger::PlanLedger(const Pace& pace, const Budget& budget, uint64_t train_samples,
                       const v1::MasterState& from)
    : batch_size_(pace.batch_size),
      steps_per_version_(pace.steps_per_version),
      contributes_first_(pace.contributes_first),
      budget_(budget.steps),
      source_(train_samples, budget.end, from),
      next_step_(from.version() * pace.steps_per_version),
      budget_steps_(from.steps()) {}

std::optional<uint64_t> PlanLedger::Prepare(uint64_t holder, const std::vector<uint64_t>& members) {
  const Plan* plan = NextPlan(holder);
  if (plan == nullptr) {
    if (closed_ || AllDealt() || !MayAskForPlan(holder)) return std::nullopt;
    MakePlan(members);
    plan = NextPlan(holder);
    CHECK(plan != nullptr) << "holder " << holder << " is not among the members";
  }
  return plan->first_step / steps_per_version_;
}

Deal PlanLedger::Next(uint64_t holder, const std::vector<uint64_t>& members) {
  const Plan* plan = NextPlan(holder);
  CHECK(plan != nullptr) << "nothing was prepared for holder " << holder;
  Holder& to = holders_[holder];
  to.leases.push_back(plan->first_step);
  Deal deal;
  deal.number = to.leases.size();
  deal.first_step = plan->first_step;
  deal.first_version = plan->first_step / steps_per_version_;
  for (uint64_t rank = 0; rank < plan->seats.size(); ++rank) {
    if (plan->seats[rank].holder != holder) continue;
    for (uint64_t i = 0; i < plan->steps.size(); ++i) deal.minibatches.push_back(plan->Part(i, rank));
  }
  return deal;
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
    for (const Seat& seat : plan->seats) {
      if (seat.holder == holder) next = &*plan;
    }
  }
  return next;
}

bool PlanLedger::MayAskForPlan(uint64_t holder) const {
  if (plans_.empty() || plans_.back().abandoned()) return true;
  const std::vector<Seat>& seats = plans_.back().seats;
  return std::any_of(seats.begin(), seats.end(),
                     [holder](const Seat& seat) { return seat.holder == holder; });
}

void PlanLedger::MakePlan(const std::vector<uint64_t>& members) {
  Plan plan;
  plan.first_step = next_step_;
  plan.budget_steps = budget_steps_;
  for (uint64_t member : members) plan.seats.push_back({member});
  const uint64_t steps = RoundUp(kStepsPerPlan, steps_per_version_);
  for (uint64_t i = 0; i < steps && !AllDealt(); ++i) {
    plan.steps.push_back(source_.Take(members.size() * batch_size_));
    open_samples_ += NumSamples(plan.steps.back());
    ++budget_steps_;
  }
  plan.steps.resize(RoundUp(plan.steps.size(), steps_per_version_));
  next_step_ = plan.end_step();
  budget_steps_ = plan.budget_steps + plan.steps.size();
  plans_.push_back(std::move(plan));
}

PlanLedger::Seat* PlanLedger::SeatOf(uint64_t holder, Plan* plan, uint64_t* rank) {
  for (*rank = 0; *rank < plan->seats.size(); ++*rank) {
    if (plan->seats[*rank].holder == holder) return &plan->seats[*rank];
  }
  LOG(FATAL) << "holder " << holder << " has no seat in its lease's plan";
}

void PlanLedger::MarkDone(uint64_t holder, uint64_t steps) {
  const auto found = holders_.find(holder);
  if (found == holders_.end()) return;
  Holder& of = found->second;
  while (of.done < of.leases.size() && of.done_steps < steps) {
    Plan* const plan = PlanAt(of.leases[of.done]);
    CHECK(plan != nullptr) << "a plan was forgotten that holder " << holder << " has not done";
    uint64_t rank;
    Seat* const seat = SeatOf(holder, plan, &rank);
    FinishSeat(*plan, rank, steps - of.done_steps, seat);
    if (seat->done < plan->steps.size()) return;
    of.done_steps += plan->steps.size();
    ++of.done;
  }
}

void PlanLedger::FinishSeat(const Plan& plan, uint64_t rank, uint64_t steps, Seat* seat) {
  if (seat->gone) return;
  for (; seat->done < std::min<uint64_t>(steps, plan.steps.size()); ++seat->done) {
    open_samples_ -= plan.PartSize(seat->done, rank);
  }
}

void PlanLedger::SetLeaving(uint64_t holder) {
  for (Plan& plan : plans_) {
    for (Seat& seat : plan.seats) seat.leaving |= seat.holder == holder;
  }
}

uint64_t PlanLedger::GiveBack(uint64_t holder, uint64_t begun) {
  const auto found = holders_.find(holder);
  uint64_t repeated = 0;
  for (Plan& plan : plans_) {
    for (uint64_t rank = 0; rank < plan.seats.size(); ++rank) {
      if (plan.seats[rank].holder != holder || plan.seats[rank].gone) continue;
      // Of the plan that the holder was at work on.
      const bool current = found != holders_.end() && found->second.done < found->second.leases.size() &&
                           found->second.leases[found->second.done] == plan.first_step;
      const uint64_t before = current ? found->second.done_steps : begun;
      repeated += GiveBackSeat(&plan, rank, begun - std::min(begun, before));
    }
  }
  holders_.erase(holder);
  return repeated;
}

uint64_t PlanLedger::GiveBackSeat(Plan* plan, uint64_t rank, uint64_t begun) {
  Seat& seat = plan->seats[rank];
  uint64_t repeated = 0;
  for (uint64_t i = seat.done; i < plan->steps.size(); ++i) {
    source_.GiveBack(plan->Part(i, rank));
    open_samples_ -= plan->PartSize(i, rank);
    if (i < begun) repeated += plan->PartSize(i, rank);
  }
  seat.gone = true;
  if (plan->abandoned()) Abandon(*plan);
  return repeated;
}

void PlanLedger::Abandon(const Plan& plan) {
  uint64_t reached = 0;
  for (const Seat& seat : plan.seats) reached = std::max(reached, seat.done);
  const uint64_t skipped = plan.steps.size() - reached;
  budget_steps_ -= skipped;
  for (Plan& later : plans_) {
    if (later.first_step > plan.first_step) later.budget_steps -= skipped;
  }
}

bool PlanLedger::HasWork(uint64_t holder) const {
  for (auto plan = plans_.rbegin(); plan != plans_.rend(); ++plan) {
    for (const Seat& seat : plan->seats) {
      if (seat.holder == holder && !seat.gone && seat.done < plan->steps.size()) return true;
    }
  }
  return false;
}

bool PlanLedger::AllDealt() const { return budget_ ? budget_steps_ >= *budget_ : source_.empty(); }

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
  return version * steps_per_version_;
}

v1::MasterState PlanLedger::StateAt(const Cut& cut) const {
  const uint64_t in_center = StepsInCenter(cut.version);
  const uint64_t at_version = cut.version * steps_per_version_;
  uint64_t done = at_version;  // by all members
  SpanPool pending = source_.pool();
  for (const Plan& plan : plans_) {
    for (uint64_t rank = 0; rank < plan.seats.size(); ++rank) {
      const Seat& seat = plan.seats[rank];
      const bool saved = cut.state_is_saved && cut.state_is_saved(seat.holder);
      const uint64_t step = saved ? at_version : in_center;
      if (!saved && plan.first_step < at_version && plan.end_step() > in_center) done = in_center;
      const uint64_t end = seat.gone ? seat.done : plan.steps.size();
      uint64_t begin = step > plan.first_step ? step - plan.first_step : 0;
      // The version may have been made without it.
      if (seat.leaving && !seat.gone) begin = std::min(begin, seat.done);
      for (uint64_t i = begin; i < end; ++i) pending.Add(plan.Part(i, rank));
    }
  }
  v1::MasterState state;
  state.set_train_samples(source_.samples_per_epoch());
  state.set_version(cut.version);
  for (const Span& span : pending.spans()) *state.add_pending() = ToProto(span);
  state.set_next_epoch(source_.next().epoch);
  state.set_next_position(source_.next().position);
  state.set_steps(BudgetStepsAt(done));
  state.set_samples(source_.next().epoch * source_.samples_per_epoch() + source_.next().position -
                    pending.num_samples());
  return state;
}

void PlanLedger::Forget(uint64_t version) {
  const auto settled = [](const Plan& plan) {
    return std::all_of(plan.seats.begin(), plan.seats.end(),
                       [&plan](const Seat& seat) { return seat.gone || seat.done == plan.steps.size(); });
  };
  // The last one stays: its members are who may ask for the next.
  while (plans_.size() > 1 && plans_.front().end_step() <= StepsInCenter(version) &&
         settled(plans_.front())) {
    plans_.pop_front();
  }
}

}  // namespace catchment
