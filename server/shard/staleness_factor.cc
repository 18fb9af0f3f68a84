#include <algorithm>
#include <cmath>

#include "server/shard/gradient_compensation.h"

namespace catchment {

double StalenessFactor(const v1::Compensation& compensation, uint64_t staleness) {
  const double tau = static_cast<double>(staleness);
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

}  // namespace catchment
