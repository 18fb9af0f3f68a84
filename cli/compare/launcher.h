// Launchers start the runs of a comparison on this machine or on a cluster. A launcher leaves nothing but the
// directory of each run; the run is done if that contains its result (IsDone in compare_directory.h).
#ifndef CATCHMENT_CLI_COMPARE_LAUNCHER_H_
#define CATCHMENT_CLI_COMPARE_LAUNCHER_H_

#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/compare/compare.h"
#include "cli/compare/compare_directory.h"
#include "cli/compare/compare_plan.h"
#include "cli/compare/compare_runs.h"

namespace catchment {

// Returns the runs to carry out since one has ended.
using FollowingRuns = std::function<std::vector<PlannedRun>(const PlannedRun& ended)>;

class Launcher {
 public:
  virtual ~Launcher() = default;

  // Carries out runs that are not done, and those that follow them. Reports the end of each to `progress` and
  // `following`, also that of a run that fails, after which it continues with the others. May return before
  // all have begun if the data have changed (CompareDirectory).
  // Errors: Aborted if a signal ended it, with the signal in *signal; those that concern all runs.
  virtual absl::Status Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                              const CompareDirectory& directory, CompareProgress* progress, int* signal) = 0;

  // Returns true if the launcher executes several runs at once.
  virtual bool concurrent() const { return false; }
};

// Carries out one run after another.
class SequentialLauncher : public Launcher {
 public:
  absl::Status Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                      const CompareDirectory& directory, CompareProgress* progress, int* signal) override;

 private:
  // Carries out one run. Errors: those of Launch.
  virtual absl::Status Train(const PlannedRun& run, const CompareDirectory& directory,
                             CompareProgress* progress, int* signal) = 0;
};

// Returns that of the options: local_launcher.h, slurm_launcher.h or kubectl_launcher.h. Errors: NotFound,
// naming a program that is needed. `signals` must outlive it.
absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(const CompareOptions& options, SignalWaiter* signals);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_LAUNCHER_H_
