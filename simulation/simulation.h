// Simulates the training of a job: discrete events on the production code of the shard, its gate, rules and
// optimizers, the master with its leases, and the workers' halves of the algorithms. Only clocks, the network
// and the time of the computation are modelled.
//
// The same job and options give the same bytes in the outputs, on the same machine; on another one, if the
// kernels of the job's model give the same bits there.
//
// Threads: several simulations may run at once, each on a thread of its own.
#ifndef CATCHMENT_SIMULATION_SIMULATION_H_
#define CATCHMENT_SIMULATION_SIMULATION_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "simulation/models.h"

namespace catchment {

struct SimulationOptions {
  int servers = 1;
  std::optional<Distribution> step;  // absent: that of job.model.synthetic
  Distribution start;                // in addition, of each worker's first step; with a mean of 0: none
  NetworkModel network;
  double slow_steps = 0;  // their share, and the factor of their time
  double slow_step_factor = 1;
  FailureModel failures;
  std::optional<QuadraticModel> quadratic;  // absent: the job's own model
  double seconds = 0;                       // of training; 0: the job's budget
  std::string end_reason;                   // why a run ended after `seconds`
  std::string out_dir;                      // "": no outputs are written
};

// Returns the time of a step of model.synthetic; nothing for a job with another model.
std::optional<Distribution> SyntheticStep(const v1::Job& job);

// Returns the time of a step: that of `options`, or that of model.synthetic. InvalidArgument if neither has
// one.
absl::StatusOr<Distribution> StepOf(const v1::Job& job, const SimulationOptions& options);

// Returns the job's status at its end. `job` is complete and valid. Errors: InvalidArgument for options that
// do not suit the job; those of its data and model; Internal if the job failed.
absl::StatusOr<v1::JobStatus> Simulate(const v1::Job& job, const SimulationOptions& options);

// Returns the number of workers that fit into `bytes` of memory.
absl::StatusOr<int64_t> WorkersThatFit(const v1::Job& job, const SimulationOptions& options, double bytes);

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_SIMULATION_H_
