#include "cli/train_run.h"

#include <algorithm>
#include <thread>

#include "cli/job_control.h"

namespace catchment {
namespace {

// A bit longer than a worker waits for its program (AttachedModel::kEndSeconds).
constexpr double kProgramEndSeconds = 75;

}  // namespace

int ThreadsPerWorker(int workers) {
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()) / workers);
}

TrainBounds BoundsFor(const std::string& program, TrainBounds bounds) {
  if (!program.empty()) bounds.end = std::max(bounds.end, kProgramEndSeconds);
  return bounds;
}

absl::StatusOr<TrainOutcome> RunCluster(const ClusterPlan& plan, const TrainBounds& bounds,
                                        SignalWaiter* signals, TrainObserver* observer) {
  LocalCluster cluster(plan);
  if (absl::Status status = cluster.Start(bounds.listen, signals); !status.ok()) return status;
  absl::StatusOr<JobControl> master = JobControl::Create(cluster.master(), plan.tls);
  if (!master.ok()) return master.status();
  return TrainMonitor(&cluster, &*master, signals, observer, bounds).Run();
}

}  // namespace catchment
