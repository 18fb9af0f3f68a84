#include "server/rules/rule.h"

#include <algorithm>

#include "common/job/algorithm_facts.h"
#include "common/job/parameter_groups.h"
#include "optim/optimizer.h"
#include "server/rules/accrued_gradient.h"
#include "server/rules/elastic_difference.h"
#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

// Returns how many workers contribute to one update when the job's own number of workers takes part.
int64_t PlannedMembers(const v1::Job& job) {
  const int64_t workers = std::max<int64_t>(1, job.workers());
  const int64_t groups = std::max<int64_t>(1, NumGroups(job.algorithm().consistency()));
  return (workers + groups - 1) / groups;
}

}  // namespace

std::unique_ptr<Rule> MakeRule(const v1::Job& job, const ParameterLayout* layout) {
  const v1::Contribution& contribution = job.algorithm().contribution();
  if (contribution.has_elastic()) {
    return std::make_unique<ElasticDifferenceRule>(contribution.elastic().moving_rate(), PlannedMembers(job));
  }
  // All other contributions have the direction of a gradient: they are averaged like gradients, and the job's
  // optimizer applies them like gradients.
  const v1::Compensation& compensation = job.algorithm().compensation();
  const uint32_t every = compensation.has_delayed_nesterov() ? compensation.delayed_nesterov().every() : 1;
  const v1::Optimizer optimizer = CenterOptimizer(job);
  return std::make_unique<AccruedGradientRule>(
      MakeOptimizer(optimizer, every, GroupTensors(optimizer, layout)), compensation,
      MakeGradientCompensation(job));
}

}  // namespace catchment
