// The data ledger of synchronous training: plans of steps that all members take together.
//
// A plan has kStepsPerPlan steps, rounded up to a multiple of the steps per version, and fewer at the end of
// the budget. Each step takes
//   m = min(p * batch_size, samples left in the epoch)
// samples (with Pace.merges_last, all that are left in the epoch if they are fewer than 2 * p * batch_size),
// of which the member of rank r of p (by worker index) gets samples m*r/p .. m*(r+1)/p - 1. Together, p
// workers with batch size b therefore process the same samples as one worker with batch size p*b. At the end
// of the budget, empty steps fill a plan up to a multiple of the steps per version.
//
// All members get a lease of the same length: one minibatch for each step of the plan, some of them empty.
// The next plan is made when a participant of the last one requests it, and includes all current members. A
// plan whose participants have all left ends at its planned step; its unfinished steps count neither as
// assigned nor toward the budget.
//
// All plans are kept until Forget, so that StateAt can tell what followed a version.
#ifndef CATCHMENT_SERVER_CONTROL_PLAN_LEDGER_H_
#define CATCHMENT_SERVER_CONTROL_PLAN_LEDGER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "server/control/data_ledger.h"
#include "server/control/sample_source.h"

namespace catchment {

inline constexpr uint64_t kStepsPerPlan = 16;

class PlanLedger final : public DataLedger {
 public:
  // Starts from `from`; a default MasterState is the beginning.
  PlanLedger(const Pace& pace, const Budget& budget, uint64_t samples_per_epoch, const v1::MasterState& from);

  std::optional<uint64_t> Prepare(uint64_t holder, const std::vector<uint64_t>& members) override;
  void SetLeaseSize(uint64_t holder, uint64_t minibatches) override {}
  Assignment Next(uint64_t holder, const std::vector<uint64_t>& members) override;
  void MarkDone(uint64_t holder, uint64_t steps) override;
  void SetLeaving(uint64_t holder) override;
  uint64_t Return(uint64_t holder, uint64_t begun) override;
  bool HasWork(uint64_t holder) const override;
  bool AllAssigned() const override;
  bool AllDone() const override { return AllAssigned() && open_samples_ == 0; }
  uint64_t done_samples() const override { return source_.taken() - open_samples_; }
  v1::MasterState StateAt(const Cut& cut) const override;
  void Forget(uint64_t version) override;
  void AwaitCheckpoint(bool awaited) override {}
  void Close() override { closed_ = true; }
  void Save(v1::MasterImage* image) const override;
  void Restore(const v1::MasterImage& image) override;

 private:
  struct Participant {
    uint64_t holder = 0;
    uint64_t done = 0;     // the number of first steps that are done
    bool leaving = false;  // the holder will do no other steps
    bool gone = false;     // the other steps were returned
  };
  struct Plan {
    uint64_t first_step = 0;                // counted over the job
    uint64_t budget_steps = 0;              // steps of the budget spent before this plan
    std::vector<Step> steps;                // of all participants together
    std::vector<Participant> participants;  // by rank

    uint64_t end_step() const { return first_step + steps.size(); }
    bool abandoned() const;
    // Returns the samples of a step that the participant of this rank gets.
    Step Part(uint64_t step, uint64_t rank) const;
    uint64_t PartSize(uint64_t step, uint64_t rank) const;
  };
  struct Holder {
    // For each lease, the first step of its plan. Leases that are done are forgotten, except for the last.
    std::deque<uint64_t> leases;
    uint64_t forgotten = 0;
    uint64_t done = 0;        // the number of first leases that are done
    uint64_t done_steps = 0;  // the number of steps in those leases

    uint64_t granted() const { return forgotten + leases.size(); }
    void ForgetDone();
  };

  Plan* PlanAt(uint64_t first_step);
  // Returns the first plan after the holder's last lease in which it participates; null if there is none.
  const Plan* NextPlan(uint64_t holder) const;
  bool MayAskForPlan(uint64_t holder) const;
  void MakePlan(const std::vector<uint64_t>& members);
  static Participant* FindParticipant(uint64_t holder, Plan* plan, uint64_t* rank);
  void MarkStepsDone(const Plan& plan, uint64_t rank, uint64_t steps, Participant* participant);
  uint64_t ReturnShare(Plan* plan, uint64_t rank, uint64_t begun);
  void Abandon(const Plan& plan);
  uint64_t BudgetStepsAt(uint64_t step) const;
  // Returns how many steps of the job are in the center at this version.
  uint64_t StepsInCenter(uint64_t version) const;

  const uint64_t batch_size_;
  const uint64_t steps_per_version_;
  const bool contributes_first_;
  const uint64_t unsent_steps_;
  const std::optional<uint64_t> budget_;  // in steps
  SampleSource source_;
  std::deque<Plan> plans_;  // by first_step
  std::map<uint64_t, Holder> holders_;
  uint64_t next_step_;     // the first step of the next plan
  uint64_t budget_steps_;  // spent so far
  uint64_t open_samples_ = 0;
  bool closed_ = false;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_PLAN_LEDGER_H_
