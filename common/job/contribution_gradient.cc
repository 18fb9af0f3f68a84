#include <cmath>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/job/algorithm_facts.h"
#include "common/job/contribution_kinds.h"

namespace catchment {
namespace {

uint32_t Period(const v1::Contribution& contribution) { return contribution.gradient().push_period(); }

void FillDefaults(uint32_t workers, v1::Contribution* contribution) {
  v1::AccruedGradient* const gradient = contribution->mutable_gradient();
  CATCHMENT_DEFAULT(gradient, push_period, 1);
  CATCHMENT_DEFAULT(gradient, fetch_period, gradient->push_period());
  CATCHMENT_DEFAULT(gradient, local_learning_rate, 0);
  CATCHMENT_DEFAULT(gradient, mean, false);
}

void Check(const v1::Job& job, Problems* problems) {
  const v1::AccruedGradient& gradient = job.algorithm().contribution().gradient();
  const uint32_t groups = NumGroups(job.algorithm().consistency());
  const std::string path = "algorithm.contribution.gradient";
  problems->AtLeast<uint32_t>(1, path + ".push_period", gradient.push_period());
  problems->AtLeast<uint32_t>(1, path + ".fetch_period", gradient.fetch_period());
  if (gradient.mean() && gradient.push_period() == 1) {
    problems->Add(path + ".mean", Reason::kNeeds,
                  "is true and push_period is 1: one gradient is its own mean; set push_period to the number "
                  "of minibatches in an update, or leave mean out");
  }
  const float local = gradient.local_learning_rate();
  problems->Require(local >= 0 && std::isfinite(local), path + ".local_learning_rate", local,
                    "must be a number, 0 or above");
  if (groups > 0 && gradient.fetch_period() != gradient.push_period()) {
    problems->Add(
        path + ".fetch_period", Reason::kConflict,
        absl::StrCat("is ", gradient.fetch_period(), " and push_period is ", gradient.push_period(),
                     "; they must be equal with consistency.", KindName(job.algorithm().consistency()),
                     ": every worker of a ", groups == 1 ? "synchronous" : "group's",
                     " update computes at the same version; leave it out, or set "
                     "algorithm.consistency to asynchronous {}"));
  }
  if (local > 0 && gradient.fetch_period() == 1) {
    problems->Add(path + ".local_learning_rate", Reason::kNeeds,
                  absl::StrCat("is ", local, "; it needs ", groups > 0 ? "push_period" : "fetch_period",
                               " above 1: with 1 the weights are fetched after every "
                               "step, and the local step is lost"));
  }
}

std::string Describe(const v1::Job& job) {
  const v1::AccruedGradient& gradient = job.algorithm().contribution().gradient();
  const bool accrues = gradient.push_period() > 1;
  std::string text = absl::StrCat(!accrues          ? "The gradient is pushed "
                                  : gradient.mean() ? "Gradients are averaged, and the mean is pushed "
                                                    : "Gradients are added, and the sum is pushed ",
                                  EverySteps(gradient.push_period()), "; fresh weights are fetched ",
                                  EverySteps(gradient.fetch_period()), ".");
  if (gradient.fetch_period() > 1) {
    absl::StrAppend(&text, gradient.local_learning_rate() > 0
                               ? absl::StrCat(" Between fetches each worker moves its own "
                                              "weights by SGD with learning rate ",
                                              Short(gradient.local_learning_rate()), ".")
                               : " Between fetches a worker's weights stay as they are.");
  }
  return text;
}

int WorkerVectors(const v1::Job& job) { return Period(job.algorithm().contribution()) > 1 ? 1 : 0; }

}  // namespace

const ContributionKind kGradientContribution = {.kind = v1::Contribution::kGradient,
                                                .period = Period,
                                                .fill_defaults = FillDefaults,
                                                .check = Check,
                                                .describe = Describe,
                                                .worker_vectors = WorkerVectors};

}  // namespace catchment
