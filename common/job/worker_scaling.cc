#include <algorithm>
#include <cmath>

#include "common/job/algorithm_facts.h"

namespace catchment {

double WorkerScale(v1::Optimizer::WorkerScaling scaling, uint32_t active, uint32_t workers) {
  const double share = std::min(2.0, static_cast<double>(std::max(1u, active)) / workers);
  switch (scaling) {
    case v1::Optimizer::LINEAR:
      return share;
    case v1::Optimizer::SQUARE_ROOT:
      return std::sqrt(share);
    default:
      return 1;
  }
}

}  // namespace catchment
