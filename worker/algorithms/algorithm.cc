#include "worker/algorithms/algorithm.h"

#include <optional>

#include "worker/algorithms/accrued_gradient.h"
#include "worker/algorithms/elastic_difference.h"
#include "worker/algorithms/energy_matching.h"
#include "worker/algorithms/look_ahead_momentum.h"
#include "worker/algorithms/pseudo_gradient.h"

namespace catchment {
namespace {

v1::AccruedGradient EveryStep() {
  v1::AccruedGradient config;
  config.set_push_period(1);
  config.set_fetch_period(1);
  return config;
}

}  // namespace

std::unique_ptr<Algorithm> MakeAlgorithm(const v1::Job& job, int64_t num_parameters, Parameters* parameters) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  const v1::Optimizer& optimizer = job.optimizer();
  std::optional<float> clip_norm;
  if (optimizer.has_clip_norm()) clip_norm = optimizer.clip_norm();
  switch (contribution.kind_case()) {
    case v1::Contribution::kElastic:
      return std::make_unique<ElasticDifference>(contribution.elastic(), optimizer, num_parameters,
                                                 parameters);
    case v1::Contribution::kPseudoGradient:
      return std::make_unique<PseudoGradient>(
          contribution.pseudo_gradient(), num_parameters, parameters,
          PseudoGradient::Options{.clip_norm = clip_norm,
                                  .synchronous = job.algorithm().consistency().has_synchronous()});
    case v1::Contribution::kEnergyMatching:
      return std::make_unique<AccruedGradient>(
          EveryStep(), num_parameters, parameters, clip_norm,
          std::make_unique<EnergyMatching>(contribution.energy_matching(), optimizer, num_parameters));
    case v1::Contribution::kLookAhead:
      return std::make_unique<AccruedGradient>(
          EveryStep(), num_parameters, parameters, clip_norm,
          std::make_unique<LookAheadMomentum>(contribution.look_ahead(), num_parameters));
    default:
      return std::make_unique<AccruedGradient>(contribution.gradient(), num_parameters, parameters,
                                               clip_norm);
  }
}

}  // namespace catchment
