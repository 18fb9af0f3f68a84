#include "cli/compare/launcher.h"

#include <iterator>
#include <utility>

#include "cli/compare/kubectl_launcher.h"
#include "cli/compare/local_launcher.h"
#include "cli/compare/slurm_launcher.h"
#include "common/base/status_macros.h"

namespace catchment {

absl::Status SequentialLauncher::Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                                        const CompareDirectory& directory, CompareProgress* progress,
                                        int* signal) {
  for (size_t i = 0; i < runs.size(); ++i) {
    RETURN_IF_ERROR(Train(runs[i], directory, progress, signal));
    std::vector<PlannedRun> next = following(runs[i]);
    if (directory.data_changed()) return absl::OkStatus();
    runs.insert(runs.end(), std::make_move_iterator(next.begin()), std::make_move_iterator(next.end()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(const CompareOptions& options, SignalWaiter* signals) {
  if (options.launcher == LauncherKind::kSlurm) return SlurmLauncher::Create(options, signals);
  if (options.launcher == LauncherKind::kKubernetes) return KubectlLauncher::Create(options, signals);
  ASSIGN_OR_RETURN(DaemonPaths daemons, FindOwnDaemons());
  return std::make_unique<LocalLauncher>(options, std::move(daemons),
                                         TrainBounds{.stall = options.stall_seconds}, signals);
}

}  // namespace catchment
