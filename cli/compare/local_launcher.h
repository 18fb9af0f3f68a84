// Runs with processes on this machine, one run after another.
#ifndef CATCHMENT_CLI_COMPARE_LOCAL_LAUNCHER_H_
#define CATCHMENT_CLI_COMPARE_LOCAL_LAUNCHER_H_

#include <utility>
#include <vector>

#include "cli/compare/launcher.h"
#include "cli/local/local_cluster.h"
#include "cli/local/train_monitor.h"

namespace catchment {

class LocalLauncher : public SequentialLauncher {
 public:
  // Owns neither the options nor the signals.
  LocalLauncher(const CompareOptions& options, DaemonPaths daemons, const TrainBounds& bounds,
                SignalWaiter* signals)
      : options_(options),
        daemons_(std::move(daemons)),
        bounds_(BoundsFor(options.program, bounds)),
        signals_(signals) {}

 private:
  ClusterPlan PlanCluster(const PlannedRun& run, const RunDirectory& directory) const;
  absl::Status Train(const PlannedRun& run, const CompareDirectory& directory, CompareProgress* progress,
                     int* signal) override;

  const CompareOptions& options_;
  const DaemonPaths daemons_;
  const TrainBounds bounds_;
  SignalWaiter* const signals_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_LOCAL_LAUNCHER_H_
