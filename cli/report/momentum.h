// The momentum that a run trained with: what its optimizer was given, and what asynchrony adds.
#ifndef CATCHMENT_CLI_REPORT_MOMENTUM_H_
#define CATCHMENT_CLI_REPORT_MOMENTUM_H_

#include <optional>

#include "cli/report/comparison.h"

namespace catchment {

// With mean staleness tau, asynchrony adds tau / (1 + tau), in the model of Mitliagkas et al. 2016
// (arXiv:1605.09774): 1 - 1/g with g = 1 + tau workers whose times are exponential.
struct Momentum {
  std::optional<double> given;     // none: the optimizer has none, or a closed loop moves it
  std::optional<double> implicit;  // none: the model is not of this algorithm
};

Momentum MomentumOf(const AlgorithmFacts& facts, double staleness_mean);

}  // namespace catchment

#endif  // CATCHMENT_CLI_REPORT_MOMENTUM_H_
