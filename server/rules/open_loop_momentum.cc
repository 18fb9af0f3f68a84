#include "server/rules/open_loop_momentum.h"

#include <algorithm>
#include <cmath>

namespace catchment {

MomentumControl::Setting OpenLoopMomentum::Set(const Stale& stale) {
  const double tau_mean = step_bound_.Add(stale.tau);
  const double added = tau_mean / (1 + tau_mean);
  const double mu = std::clamp(target_ - added, double{config_.min_momentum()}, target_);
  const double factor = std::pow((1 - mu) / (1 - target_), double{config_.rate_correction()});
  setting_ = {static_cast<float>(mu), static_cast<float>(step_bound_.Limit(factor))};
  return setting_;
}

v1::MomentumState OpenLoopMomentum::state() const {
  v1::MomentumState state;
  step_bound_.Save(&state);
  if (!state.has_staleness_mean()) return state;
  state.set_momentum(*setting_.momentum);
  state.set_rate_factor(setting_.rate_factor);
  return state;
}

void OpenLoopMomentum::Restore(const v1::MomentumState& state) {
  step_bound_.Restore(state);
  if (state.has_momentum()) setting_ = {state.momentum(), state.rate_factor()};
}

}  // namespace catchment
