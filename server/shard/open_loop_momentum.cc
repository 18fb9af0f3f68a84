#include "server/shard/open_loop_momentum.h"

#include <algorithm>
#include <cmath>

namespace catchment {

MomentumControl::Setting OpenLoopMomentum::Set(const Stale& stale) {
  const double a = config_.averaging();
  tau_mean_ = begun_ ? (1 - a) * tau_mean_ + a * stale.tau : stale.tau;
  begun_ = true;
  const double added = tau_mean_ / (1 + tau_mean_);
  const double mu = std::clamp(target_ - added, double{config_.min_momentum()}, target_);
  setting_.momentum = static_cast<float>(mu);
  setting_.rate_factor =
      static_cast<float>(std::pow((1 - mu) / (1 - target_), double{config_.rate_correction()}));
  return setting_;
}

v1::MomentumState OpenLoopMomentum::state() const {
  v1::MomentumState state;
  if (!begun_) return state;
  state.set_staleness_mean(tau_mean_);
  state.set_momentum(setting_.momentum);
  state.set_rate_factor(setting_.rate_factor);
  return state;
}

void OpenLoopMomentum::Restore(const v1::MomentumState& state) {
  begun_ = state.has_staleness_mean();
  tau_mean_ = state.staleness_mean();
  if (state.has_momentum()) setting_ = {state.momentum(), state.rate_factor()};
}

}  // namespace catchment
