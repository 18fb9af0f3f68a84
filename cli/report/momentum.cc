#include <algorithm>

#include "cli/report/findings.h"

namespace catchment {

Momentum MomentumOf(const AlgorithmFacts& facts, double staleness_mean) {
  Momentum momentum{facts.momentum, std::nullopt};
  const double added = staleness_mean / (1 + staleness_mean);
  if (facts.implicit) momentum.implicit = added;
  if (facts.closed_loop) momentum.given.reset();
  if (facts.open_loop_minimum.has_value() && facts.momentum.has_value()) {
    momentum.given = std::clamp(*facts.momentum - added, *facts.open_loop_minimum, *facts.momentum);
  }
  return momentum;
}

}  // namespace catchment
