#include "cli/compare/launcher.h"

#include <iterator>
#include <utility>

#include "cli/compare/kubectl_launcher.h"
#include "cli/compare/local_launcher.h"
#include "cli/compare/slurm_launcher.h"

namespace catchment {

absl::Status SequentialLauncher::Launch(std::vector<PlannedRun> runs, const FollowingRuns& following,
                                        const CompareDirectory& directory, CompareProgress* progress,
                                        int* signal) {
  for (size_t i = 0; i < runs.size(); ++i) {
    if (absl::Status status = Train(runs[i], directory, progress, signal); !status.ok()) return status;
    std::vector<PlannedRun> next = following(runs[i]);
    runs.insert(runs.end(), std::make_move_iterator(next.begin()), std::make_move_iterator(next.end()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(const CompareOptions& options, SignalWaiter* signals) {
  if (options.launcher == LauncherKind::kSlurm) return SlurmLauncher::Create(options, signals);
  if (options.launcher == LauncherKind::kKubernetes) return KubectlLauncher::Create(options, signals);
  absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return daemons.status();
  return std::make_unique<LocalLauncher>(options, *std::move(daemons),
                                         TrainBounds{.stall = options.stall_seconds}, signals);
}

}  // namespace catchment
