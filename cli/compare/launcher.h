// Where the runs of a comparison train. A run's directory is all that a launcher leaves: a run is done if that has its
// result (IsDone in compare_directory.h).
#ifndef CATCHMENT_CLI_COMPARE_LAUNCHER_H_
#define CATCHMENT_CLI_COMPARE_LAUNCHER_H_

#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"
#include "cli/process.h"

namespace catchment {

class Launcher {
 public:
  virtual ~Launcher() = default;

  // Carries out runs that are not done, and reports the end of each to `progress`, also that of a run that fails, after
  // which it continues with the others.
  // Errors: Aborted if a signal ended it, with the signal in *signal; those that concern all runs.
  virtual absl::Status Launch(const std::vector<PlannedRun>& runs, const CompareDirectory& directory,
                              CompareProgress* progress, int* signal) = 0;
};

// Returns that of the options: local_launcher.h, slurm_launcher.h or kubectl_launcher.h. Errors: NotFound, naming a program that is needed.
// `signals` must outlive it.
absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(const CompareOptions& options, SignalWaiter* signals);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_LAUNCHER_H_
