#include "worker/algorithms/algorithm.h"

#include "worker/algorithms/accrued_gradient.h"
#include "worker/algorithms/elastic_difference.h"

namespace catchment {

std::unique_ptr<Algorithm> MakeAlgorithm(const v1::Job& job, int64_t num_parameters, Parameters* parameters) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (contribution.has_elastic()) {
    return std::make_unique<ElasticDifference>(contribution.elastic(), job.optimizer(), num_parameters,
                                               parameters);
  }
  return std::make_unique<AccruedGradient>(contribution.gradient(), num_parameters, parameters);
}

}  // namespace catchment
