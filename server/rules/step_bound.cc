#include "server/rules/step_bound.h"

#include <algorithm>
#include <limits>

namespace catchment {

StepBound::StepBound(const v1::Compensation& compensation, double lowered, double averaging)
    : bound_(compensation.has_step_bound() ? compensation.step_bound() / (1 - lowered)
                                           : std::numeric_limits<double>::infinity()),
      averaging_(averaging) {}

double StepBound::Add(double tau) {
  tau_mean_ = begun_ ? (1 - averaging_) * tau_mean_ + averaging_ * tau : tau;
  begun_ = true;
  return tau_mean_;
}

double StepBound::Limit(double wanted) const { return std::min(wanted, bound_ / (1 + tau_mean_)); }

void StepBound::Save(v1::MomentumState* state) const {
  if (begun_) state->set_staleness_mean(tau_mean_);
}

void StepBound::Restore(const v1::MomentumState& state) {
  begun_ = state.has_staleness_mean();
  tau_mean_ = state.staleness_mean();
}

}  // namespace catchment
