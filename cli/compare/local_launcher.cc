#include "cli/compare/local_launcher.h"

#include <signal.h>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace catchment {

ClusterPlan LocalLauncher::PlanCluster(const PlannedRun& run, const RunDirectory& directory) const {
  ClusterPlan plan;
  plan.daemons = daemons_;
  plan.job = directory.job();
  plan.out = directory.path();
  plan.checkpoints = directory.checkpoints();
  plan.servers = options_.servers;
  plan.workers = run.workers;
  // A comparison depends on the scores, which must not be delayed if workers use all processors.
  plan.evaluator_nice = 0;
  plan.threads = options_.threads;
  plan.device = options_.device;
  plan.program = options_.program;
  return plan;
}

absl::Status LocalLauncher::Train(const PlannedRun& run, const CompareDirectory& comparison,
                                  CompareProgress* progress, int* signal) {
  ASSIGN_OR_RETURN(const RunDirectory directory, PrepareRun(run, comparison));
  TrainBounds bounds = bounds_;
  bounds.train = run.seconds;
  progress->Begin(LabelOf(run));
  const absl::StatusOr<TrainOutcome> outcome =
      RunCluster(PlanCluster(run, directory), bounds, signals_, progress);
  if (absl::IsAborted(outcome.status())) *signal = SIGINT;
  if (outcome.ok()) *signal = outcome->signal;
  if (*signal != 0) return absl::AbortedError("interrupted");
  DeleteCheckpoints(directory.path());
  const absl::Status status = outcome.ok() ? outcome->status : outcome.status();
  progress->End(status.ok() ? ResultLine(directory.path()) : absl::StrCat("failed: ", status.message()));
  return absl::OkStatus();
}

}  // namespace catchment
