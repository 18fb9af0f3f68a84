// One row of the `scaling` benchmark: a server and workers as processes of this machine, started, measured in
// steady state, and killed.
#ifndef CATCHMENT_TESTS_BENCHMARKS_SCALING_RUN_H_
#define CATCHMENT_TESTS_BENCHMARKS_SCALING_RUN_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/local/local_cluster.h"
#include "tests/benchmarks/scaling_case.h"

namespace catchment {

struct ScalingSetting {
  DaemonPaths daemons;
  std::string directory;  // for logs; a folder for each case is made in it
  double seconds = 5;     // of measurement, at least
};

struct ScalingFigures {
  double start_seconds = 0;  // from the first process to the first contribution of every worker
  // Contributions applied: pushes, or elastic exchanges.
  double updates_per_second = 0;
  // Milliseconds from the moment when a worker has its whole gradient to send until it has all fresh weights.
  // Absent if no worker has reported any.
  std::optional<double> p50_ms;
  std::optional<double> p99_ms;
  double server_processors = 0;  // busy on average: 0.5 is half a core
  double worker_processors = 0;  // of all workers together
  double machine_share = 0;      // of all cores, that something kept busy
  int64_t server_bytes = 0;      // resident
  int64_t worker_bytes = 0;      // resident, of one worker on average
};

// Steps of each worker that are measured: an even number, at least 2.
int MeasuredSteps(const ScalingCase& c, double seconds);
// Returns an estimate of the time that MeasureScaling takes.
double ExpectedSeconds(const ScalingCase& c, double seconds);

// Errors: a process that ended, with its last words; workers that do not train in time; Aborted for a signal.
absl::StatusOr<ScalingFigures> MeasureScaling(const ScalingCase& c, const ScalingSetting& setting,
                                              SignalWaiter* signals);

}  // namespace catchment

#endif  // CATCHMENT_TESTS_BENCHMARKS_SCALING_RUN_H_
