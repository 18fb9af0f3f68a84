// Sets the momentum from the measured staleness: with g workers in turn, tau is g - 1 on average, and
// asynchrony adds 1 - 1/g = tau / (1 + tau) (Mitliagkas et al. 2016, arXiv:1605.09774).
//   tau_mean = (1 - a) * tau_mean + a * tau
//   mu       = clamp(target - tau_mean / (1 + tau_mean), min_momentum, target)
//   eta'     = eta * min(((1 - mu) / (1 - target))^r, c / ((1 - target) * (1 + tau_mean)))
// The power compensates for the smaller step eta / (1 - mu) with less momentum, with r = 1 completely. The
// other term bounds it (step_bound.h): the delay limits the step, regardless of the momentum.
#ifndef CATCHMENT_SERVER_RULES_OPEN_LOOP_MOMENTUM_H_
#define CATCHMENT_SERVER_RULES_OPEN_LOOP_MOMENTUM_H_

#include "server/rules/momentum_control.h"
#include "server/rules/step_bound.h"

namespace catchment {

class OpenLoopMomentum final : public MomentumControl {
 public:
  OpenLoopMomentum(float target, const v1::Compensation& compensation)
      : target_(target),
        config_(compensation.open_loop_momentum()),
        step_bound_(compensation, target, config_.averaging()) {}

  Setting Set(const Stale& stale) override;
  v1::MomentumState state() const override;
  void Restore(const v1::MomentumState& state) override;

 private:
  const double target_;
  const v1::OpenLoopMomentum config_;
  StepBound step_bound_;
  Setting setting_ = {.momentum = 0};
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_OPEN_LOOP_MOMENTUM_H_
