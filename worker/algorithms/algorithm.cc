#include "worker/algorithms/algorithm.h"

#include <optional>

#include "common/job/parameter_groups.h"
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

bool MayKeepWeights(const v1::Job& job) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  return (contribution.has_pseudo_gradient() || contribution.has_elastic()) &&
         !job.checkpoint().worker_state();
}

std::unique_ptr<Algorithm> MakeAlgorithm(const v1::Job& job, int64_t num_parameters, Parameters* parameters,
                                         const ModelMemory& memory, const ParameterLayout* layout) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  const v1::Optimizer& optimizer = job.optimizer();
  const RateFactors factors(optimizer, layout, num_parameters);
  std::optional<float> clip_norm;
  if (optimizer.has_clip_norm()) clip_norm = optimizer.clip_norm();
  switch (contribution.kind_case()) {
    case v1::Contribution::kElastic:
      return std::make_unique<ElasticDifference>(contribution.elastic(), optimizer, factors, num_parameters,
                                                 parameters, memory.kept);
    case v1::Contribution::kPseudoGradient: {
      const v1::Optimizer local = GradientOptimizer(job);
      return std::make_unique<PseudoGradient>(
          contribution.pseudo_gradient(), num_parameters, parameters,
          PseudoGradient::Options{.clip_norm = clip_norm,
                                  .synchronous = job.algorithm().consistency().has_synchronous()},
          memory.kept == nullptr ? MakeOptimizer(local, 1, GroupTensors(local, layout)) : nullptr,
          memory.kept);
    }
    case v1::Contribution::kEnergyMatching:
      return std::make_unique<AccruedGradient>(
          EveryStep(), factors, num_parameters, parameters, memory, clip_norm,
          std::make_unique<EnergyMatching>(contribution.energy_matching(), optimizer, num_parameters));
    case v1::Contribution::kLookAhead:
      return std::make_unique<AccruedGradient>(
          EveryStep(), factors, num_parameters, parameters, memory, clip_norm,
          std::make_unique<LookAheadMomentum>(contribution.look_ahead(), num_parameters));
    default:
      return std::make_unique<AccruedGradient>(contribution.gradient(), factors, num_parameters, parameters,
                                               memory, clip_norm);
  }
}

}  // namespace catchment
