#include "cli/live/advice.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "cli/live/advice_rules.h"
#include "common/job/algorithm_facts.h"
#include "common/job/data_sources.h"

namespace catchment {
namespace {

void FindNoEvaluator(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  double longest = 0;
  for (const WarmedUpWorker& one : WarmedUpWorkers(status)) longest = std::max(longest, one.work.seconds());
  if (status.evaluators() > 0 || longest < kEvaluatorSeconds) return;
  if (!WhyNoTestSamples(status.settings().data()).empty()) return;
  warnings->push_back(
      {.code = "no_evaluator",
       .measured = 0,
       .bound = 1,
       .found = "there is no evaluator, although the job's data have test samples",
       .why = "The test set is not scored, so neither the progress nor the quality of the result is known.",
       .advice = "Start one, at any time: catchment_worker --role=evaluator --master=HOST:PORT."});
}

// The status has the last and the best test loss and the current training loss, but no history.
void FindOverFitting(const v1::JobStatus& status, std::vector<Warning>* warnings) {
  const double best = status.best_test_loss();
  if (status.best_evaluation() == 0 || status.evaluations_since_best() < kEvaluationsSinceBest) return;
  if (status.test_loss() <= kTestLossTimes * best || status.train_loss() >= best) return;
  warnings->push_back(
      {.code = "over_fitting",
       .measured = status.test_loss() / best,
       .bound = kTestLossTimes,
       .found = absl::StrCat("the test loss is ", Short(status.test_loss(), 4), ", ",
                             Times(status.test_loss() / best), " times its best of ", Short(best, 4), " ",
                             status.evaluations_since_best(), " evaluations ago; the training loss is ",
                             Short(status.train_loss(), 4)),
       .why = "The model memorizes its training samples and gets worse on new ones.",
       .advice =
           "Stop, and use the best weights (evaluation.keep_best, evaluation.patience); then add data or "
           "data.augmentation, dropout, or optimizer.weight_decay."});
}

}  // namespace

bool AllWait(const v1::JobStatus& status) {
  const v1::Consistency& consistency = ConsistencyOf(status);
  return NumGroups(consistency) > 0 && BackupWorkers(consistency) == 0 && !consistency.has_quorum();
}

std::string PeriodField(const v1::JobStatus& status) {
  switch (status.settings().algorithm().contribution().kind_case()) {
    case v1::Contribution::kElastic:
      return "algorithm.contribution.elastic.communication_period";
    case v1::Contribution::kPseudoGradient:
      return "algorithm.contribution.pseudo_gradient.local_steps";
    case v1::Contribution::kGradient:
      return "algorithm.contribution.gradient.push_period";
    default:
      return "";
  }
}

std::vector<WarmedUpWorker> WarmedUpWorkers(const v1::JobStatus& status) {
  std::vector<WarmedUpWorker> workers;
  for (const v1::WorkerStatus& worker : status.workers()) {
    const Work work = WorkOf(worker, nullptr);
    if (work.seconds() >= kWarmUpSeconds && work.steps >= kWarmUpSteps) workers.push_back({&worker, work});
  }
  return workers;
}

double ExpectedStaleness(const v1::Job& job) {
  const v1::Consistency& consistency = job.algorithm().consistency();
  const double workers = std::max<double>(1, job.workers());
  if (const uint32_t groups = NumGroups(consistency); groups > 0)
    return std::min<double>(groups, workers) - 1;
  double expected = workers - 1;
  const v1::AccruedGradient& gradient = job.algorithm().contribution().gradient();
  if (gradient.push_period() > 0 && gradient.fetch_period() > gradient.push_period()) {
    const double pushes = static_cast<double>(gradient.fetch_period()) / gradient.push_period();
    expected = (pushes - 1) / 2 + (pushes + 1) / 2 * (workers - 1);
  }
  if (IsBuffered(consistency)) return workers / BufferedContributions(consistency, job.workers());
  return expected + consistency.asynchronous().emulated_delay();
}

std::vector<Warning> Advise(const v1::JobStatus& status) {
  std::vector<Warning> warnings;
  if (status.phase() == v1::JobStatus::TRAINING) {
    for (const auto find :
         {FindNonFinite, FindSilentWorkers, FindMissingWorkers, FindStragglers, FindWaits, FindNoProgress,
          FindStaleness, FindLate, FindShardsBehind, FindLargeShards, FindNoEvaluator, FindOverFitting}) {
      find(status, &warnings);
    }
  }
  if (status.phase() == v1::JobStatus::TRAINING || status.phase() == v1::JobStatus::FINISHING) {
    FindCheckpoints(status, &warnings);
  }
  return warnings;
}

}  // namespace catchment
