// Sets the momentum from the measured staleness: with g workers in turn, tau is g - 1 on average, and
// asynchrony adds 1 - 1/g = tau / (1 + tau) (Mitliagkas et al. 2016, arXiv:1605.09774).
//   tau_mean = (1 - a) * tau_mean + a * tau
//   mu       = clamp(target - tau_mean / (1 + tau_mean), min_momentum, target)
//   eta'     = eta * ((1 - mu) / (1 - target))^c
// The last line compensates for the smaller step eta / (1 - mu) with less momentum, with c = 1 completely.
// The average begins at the first tau and not at 0.
#ifndef CATCHMENT_SERVER_SHARD_OPEN_LOOP_MOMENTUM_H_
#define CATCHMENT_SERVER_SHARD_OPEN_LOOP_MOMENTUM_H_

#include "server/shard/momentum_control.h"

namespace catchment {

class OpenLoopMomentum final : public MomentumControl {
 public:
  OpenLoopMomentum(float target, const v1::OpenLoopMomentum& config) : target_(target), config_(config) {}

  Setting Set(const Stale& stale) override;
  v1::MomentumState state() const override;
  void Restore(const v1::MomentumState& state) override;

 private:
  const double target_;
  const v1::OpenLoopMomentum config_;
  bool begun_ = false;
  double tau_mean_ = 0;
  Setting setting_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_OPEN_LOOP_MOMENTUM_H_
