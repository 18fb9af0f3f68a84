#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/contribution_kinds.h"

namespace catchment {
namespace {

// beta = workers * moving_rate of the paper (arXiv:1412.6651).
constexpr double kBeta = 0.9;

uint32_t Period(const v1::Contribution& contribution) {
  return contribution.elastic().communication_period();
}

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  v1::ElasticDifference* const elastic = contribution->mutable_elastic();
  CATCHMENT_DEFAULT(elastic, communication_period, 4);
  CATCHMENT_DEFAULT(elastic, moving_rate, static_cast<float>(kBeta / std::max(1u, workers)));
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::ElasticDifference& elastic = job.algorithm().contribution().elastic();
  const std::string path = "algorithm.contribution.elastic";
  problems->AtLeast<uint32_t>(1, path + ".communication_period", elastic.communication_period());
  const double rate = elastic.moving_rate();
  problems->Require(rate > 0 && rate <= 1, path + ".moving_rate", rate, "must be in (0, 1]");
  const uint32_t groups = NumGroups(job.algorithm().consistency());
  if (groups == 0) return;
  const uint32_t together = (job.workers() + groups - 1) / groups;
  // Half a unit in the last place for 1.0f / workers.
  if (rate <= 1 && rate * together > 1 + 1e-6) {
    problems->Add(path + ".moving_rate", Reason::kRange,
                  absl::StrCat("is ", rate, " with ", job.workers(), " workers; must be at most ", groups,
                               " / workers with consistency.", KindName(job.algorithm().consistency()),
                               ": the center would move beyond the workers' mean"));
  }
}

std::string Describe(const v1::Job& job) {
  const v1::ElasticDifference& elastic = job.algorithm().contribution().elastic();
  return absl::StrCat("Each worker trains its own weights x and sends them ",
                      EverySteps(elastic.communication_period()), "; d = ", Short(elastic.moving_rate(), 4),
                      " * (x - center) is then added to the center and taken from x.");
}

// Counts the difference and, with momentum, the point that it looks ahead to.
int WorkerVectors(const v1::Job& job) { return 1 + 2 * OptimizerVectors(job.optimizer()); }

}  // namespace

const ContributionKind kElasticContribution = {.kind = v1::Contribution::kElastic,
                                               .period = Period,
                                               .contributes_first = true,
                                               .workers_apply_learning_rate = true,
                                               .has_weight_decay = false,
                                               .fill_defaults = FillDefaults,
                                               .check = Check,
                                               .describe = Describe,
                                               .worker_vectors = WorkerVectors};

}  // namespace catchment
