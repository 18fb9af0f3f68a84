#include "cli/compare/launcher.h"

#include <utility>

#include "cli/compare/kubectl_launcher.h"
#include "cli/compare/local_launcher.h"
#include "cli/compare/slurm_launcher.h"

namespace catchment {

absl::StatusOr<std::unique_ptr<Launcher>> MakeLauncher(const CompareOptions& options, SignalWaiter* signals) {
  if (options.launcher == LauncherKind::kSlurm) return SlurmLauncher::Create(options, signals);
  if (options.launcher == LauncherKind::kKubernetes) return KubectlLauncher::Create(options, signals);
  absl::StatusOr<DaemonPaths> daemons = FindOwnDaemons();
  if (!daemons.ok()) return daemons.status();
  return std::make_unique<LocalLauncher>(options, *std::move(daemons),
                                         TrainBounds{.stall = options.stall_seconds}, signals);
}

}  // namespace catchment
