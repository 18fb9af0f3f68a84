#include "server/rules/momentum_control.h"

#include "server/rules/closed_loop_momentum.h"
#include "server/rules/open_loop_momentum.h"
#include "server/rules/step_bound.h"

namespace catchment {
namespace {

// Bounds the learning rate, and leaves the momentum as it is.
class BoundAlone final : public MomentumControl {
 public:
  explicit BoundAlone(const v1::Compensation& compensation)
      : step_bound_(compensation, /*lowered=*/0, StepBound::kAveraging) {}

  Setting Set(const Stale& stale) override {
    step_bound_.Add(stale.tau);
    return {.rate_factor = static_cast<float>(step_bound_.Limit(1))};
  }

  v1::MomentumState state() const override {
    v1::MomentumState state;
    step_bound_.Save(&state);
    if (state.has_staleness_mean()) state.set_rate_factor(static_cast<float>(step_bound_.Limit(1)));
    return state;
  }

  void Restore(const v1::MomentumState& state) override { step_bound_.Restore(state); }

 private:
  StepBound step_bound_;
};

}  // namespace

std::unique_ptr<MomentumControl> MakeMomentumControl(const v1::Job& job, int64_t size) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const float target = job.optimizer().momentum();
  if (compensation.has_open_loop_momentum()) {
    return std::make_unique<OpenLoopMomentum>(target, compensation);
  }
  if (compensation.has_closed_loop_momentum()) {
    return std::make_unique<ClosedLoopMomentum>(target, compensation, size);
  }
  if (compensation.has_step_bound()) return std::make_unique<BoundAlone>(compensation);
  return nullptr;
}

}  // namespace catchment
