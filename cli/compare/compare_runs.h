// Carries runs out, one after another, each in its directory.
#ifndef CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
#define CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_

#include <ostream>
#include <vector>

#include "absl/status/status.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_options.h"
#include "cli/compare/compare_plan.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/train_monitor.h"

namespace catchment {

// None is owned.
struct CompareRunner {
  const CompareOptions& options;
  const DaemonPaths& daemons;
  const TrainBounds bounds;
  const CompareDirectory& directory;
  SignalWaiter* signals;
  std::ostream* out;
  int columns = 0;  // of the terminal behind `out`; 0: none

  // Those that are missing. A run that fails is said so and the next begins. Errors: Aborted when a signal
  // ended a run, which *signal then is; a directory that cannot be written.
  absl::Status RunMissing(const std::vector<PlannedRun>& runs, int* signal) const;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_COMPARE_RUNS_H_
