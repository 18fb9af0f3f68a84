#include <algorithm>
#include <cmath>

#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

double FactorOfKind(const v1::Compensation& compensation, double tau) {
  switch (compensation.kind_case()) {
    case v1::Compensation::kInverse:
      return 1 / std::max(1.0, tau);
    case v1::Compensation::kPower:
      return std::pow(1 + tau, -double{compensation.power().exponent()});
    case v1::Compensation::kExponential:
      return std::exp(-double{compensation.exponential().rate()} * tau);
    default:
      return 1;
  }
}

double DelayAdaptiveFactor(double threshold, double tau) { return threshold / std::max(threshold, tau); }

}  // namespace

double StalenessFactor(const v1::Compensation& compensation, uint64_t staleness) {
  const double tau = static_cast<double>(staleness);
  const double factor = FactorOfKind(compensation, tau);
  if (!compensation.has_delay_adaptive()) return factor;
  return factor * DelayAdaptiveFactor(compensation.delay_adaptive().threshold(), tau);
}

}  // namespace catchment
