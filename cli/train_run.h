// One run of `catchment train`: its processes, from their start to their end.
//
// Read on in cli/local_cluster.h (the processes) and cli/train_monitor.h (what happens while they run).
#ifndef CATCHMENT_CLI_TRAIN_RUN_H_
#define CATCHMENT_CLI_TRAIN_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "cli/train_monitor.h"

namespace catchment {

// Returns the threads of each worker if this number of workers share this machine.
int ThreadsPerWorker(int workers);

// Returns the bounds of a run whose workers are started with `program`, which may be empty: it may still do
// something after the last step.
TrainBounds BoundsFor(const std::string& program, TrainBounds bounds);

// Errors: why the run did not begin (Aborted: a signal came); the outcome has what ended it later. No process
// is left in either case.
absl::StatusOr<TrainOutcome> RunCluster(const ClusterPlan& plan, const TrainBounds& bounds,
                                        SignalWaiter* signals, TrainObserver* observer);

}  // namespace catchment

#endif  // CATCHMENT_CLI_TRAIN_RUN_H_
