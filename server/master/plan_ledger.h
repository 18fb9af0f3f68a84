// The data ledger of synchronous training: plans of steps that all members take together.
//
// A plan has kStepsPerPlan steps, rounded up to whole versions; fewer at the end of the budget. Each step
// takes
//   m = min(p * batch_size, what is left of the epoch)
// samples, and the member of rank r of p (by worker index) gets samples m*r/p .. m*(r+1)/p - 1 of them. So p
// workers of batch b see together what one worker of batch p*b sees. At the end of the budget a plan is
// filled up to whole versions with steps of no samples.
//
// A plan's lease is the same for all members: as many minibatches as it has steps, some of them empty. The
// next plan is made when a member of the last one asks for it, with all who are members then. A plan whose
// members have all gone ends where it was planned to end; what it left undone counts neither as dealt nor as
// steps of the budget.
//
// All plans are kept until they are forgotten, so that StateAt can say what followed a version.
#ifndef CATCHMENT_SERVER_MASTER_PLAN_LEDGER_H_
#define CATCHMENT_SERVER_MASTER_PLAN_LEDGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "server/master/budget.h"
#include "server/master/data_ledger.h"
#include "server/master/sample_source.h"

namespace catchment {

inline constexpr uint64_t kStepsPerPlan = 16;

class PlanLedger final : public DataLedger {
 public:
  // `from`: where to begin; a default MasterState is the beginning.
  PlanLedger(const Pace& pace, const Budget& budget, uint64_t train_samples, const v1::MasterState& from);

  std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) override;
  void SetLeaseSize(uint64_t holder, uint64_t minibatches) override {}
  Deal Next(uint64_t holder, const std::vector<uint64_t>& members) override;
  void MarkDone(uint64_t holder, uint64_t steps) override;
  void SetLeaving(uint64_t holder) override;
  uint64_t GiveBack(uint64_t holder, uint64_t begun) override;
  bool HasWork(uint64_t holder) const override;
  bool AllDealt() const override;
  bool AllDone() const override { return AllDealt() && open_samples_ == 0; }
  uint64_t done_samples() const override { return source_.taken() - open_samples_; }
  v1::MasterState StateAt(const Cut& cut) const override;
  void Forget(uint64_t version) override;
  void AwaitCheckpoint(bool awaited) override {}
  void Close() override { closed_ = true; }

 private:
  struct Seat {
    uint64_t holder = 0;
    uint64_t done = 0;     // steps, the first ones
    bool leaving = false;  // of the others the holder will do none
    bool gone = false;     // the others were given back
  };
  struct Plan {
    uint64_t first_step = 0;    // of the job
    uint64_t budget_steps = 0;  // of the budget, spent before it
    std::vector<Step> steps;    // of all members together
    std::vector<Seat> seats;    // by rank

    uint64_t end_step() const { return first_step + steps.size(); }
    bool abandoned() const;
    // What the member of this rank gets of a step.
    Step Part(uint64_t step, uint64_t rank) const;
    uint64_t PartSize(uint64_t step, uint64_t rank) const;
  };
  struct Holder {
    std::vector<uint64_t> leases;  // the first step of the plan of each
    uint64_t done = 0;             // leases, the first ones ...
    uint64_t done_steps = 0;       // ... and the steps in them
  };

  Plan* PlanAt(uint64_t first_step);
  // The first plan after the holder's last lease in which it has a seat; null when there is none.
  const Plan* NextPlan(uint64_t holder) const;
  bool MayAskForPlan(uint64_t holder) const;
  void MakePlan(const std::vector<uint64_t>& members);
  static Seat* SeatOf(uint64_t holder, Plan* plan, uint64_t* rank);
  void FinishSeat(const Plan& plan, uint64_t rank, uint64_t steps, Seat* seat);
  uint64_t GiveBackSeat(Plan* plan, uint64_t rank, uint64_t begun);
  void Abandon(const Plan& plan);
  uint64_t BudgetStepsAt(uint64_t step) const;
  // Returns how many steps of the job are in the center at this version.
  uint64_t StepsInCenter(uint64_t version) const;

  const uint64_t batch_size_;
  const uint64_t steps_per_version_;
  const bool contributes_first_;
  const std::optional<uint64_t> budget_;  // in steps
  SampleSource source_;
  std::deque<Plan> plans_;  // by first_step
  std::map<uint64_t, Holder> holders_;
  uint64_t next_step_;     // the first step of the next plan
  uint64_t budget_steps_;  // spent
  uint64_t open_samples_ = 0;
  bool closed_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PLAN_LEDGER_H_
