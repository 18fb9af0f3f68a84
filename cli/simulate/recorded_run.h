// Reads the inputs of a simulation from a finished run: the time of a step, the additional time of first
// steps, and the time of an exchange.
#ifndef CATCHMENT_CLI_SIMULATE_RECORDED_RUN_H_
#define CATCHMENT_CLI_SIMULATE_RECORDED_RUN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "simulation/models.h"

namespace catchment {

// Returns the distribution of a step's time: constant, or log-normal if steps differ. Its mean is the
// computing time of all workers for each step (summary.json); its spread is that of the workers' means over
// the intervals of metrics.jsonl, scaled to one step, without what all workers have in common. Errors:
// NotFound or InvalidArgument, naming what the run's files lack.
absl::StatusOr<Distribution> RecordedStep(const std::string& directory);

// Returns the mean time of a step of each worker, from metrics.jsonl; nothing of a run that was too short for
// two lines.
// Errors: as above.
absl::StatusOr<std::map<uint32_t, double>> RecordedStepsByWorker(const std::string& directory);

// Returns by how much the first steps of workers took longer: exponential, with the standard deviation
// between the workers as its mean. It is what a worker computed in its first interval of metrics.jsonl beyond
// as many steps of its later intervals, without the spread that these steps have anyway. Nothing if that
// explains all, or if fewer than two workers have two intervals. Errors: as above.
absl::StatusOr<std::optional<Distribution>> RecordedStart(const std::string& directory);

// Returns a network without a limit to bandwidth on which an exchange takes the run's median round trip.
// Errors: as above; InvalidArgument for a run whose round trips contain waiting for other workers.
absl::StatusOr<NetworkModel> RecordedNetwork(const std::string& directory);

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIMULATE_RECORDED_RUN_H_
