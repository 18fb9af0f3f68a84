// The evidence that advice rests on: a job and its measurements.
#ifndef CATCHMENT_CLI_ADVISE_EVIDENCE_H_
#define CATCHMENT_CLI_ADVISE_EVIDENCE_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "simulation/models.h"

namespace catchment {

// Measurements of a run that has trained.
struct Measured {
  double compute_share = 0;         // of the time of its workers
  std::optional<double> staleness;  // the mean; nothing before the first update
};

struct Evidence {
  std::string subject;         // "job examples/mnist_mlp.textproto"
  std::string job_file;        // for the next command; empty if there is none
  bool own_optimizer = false;  // the job file has settings of the optimizer
  v1::Job job;                 // with all defaults; with a synthetic model if it is of a running job
  int servers = 1;
  std::optional<Distribution> step;  // of a worker that is not slow
  std::string step_source;           // "measured", "--step"
  std::map<uint32_t, double> slow;   // by how much single workers' steps take longer
  NetworkModel network = {.bytes_per_second = 1.25e9, .latency = 50e-6};
  std::string network_source = "assumed";
  std::optional<Measured> measured;
  // Only of a run whose servers have measured it. It is that of the model and its data, with any number of
  // workers.
  std::optional<v1::GradientNoise> noise;
  // The job is that of a run: otherwise nothing can have been measured.
  bool has_run = false;

  int workers() const { return std::max(1, static_cast<int>(job.workers())); }
};

// `job` is complete and valid. The step is that of model.synthetic, if the job has it. Errors: those of
// JobFacts.
absl::StatusOr<Evidence> EvidenceOfJob(const v1::Job& job, int servers);

// Takes the step, slow workers, the network and the staleness from the --out of a finished run. Errors:
// NotFound or InvalidArgument, naming what its files lack.
absl::StatusOr<Evidence> EvidenceOfRun(const std::string& directory);

// Takes them from the status of a running job. The spread of steps is not in it: they are taken as constant;
// nor are the layers of the model: it becomes a synthetic one of the same size. Errors:
// FailedPrecondition if its servers are not all there.
absl::StatusOr<Evidence> EvidenceOfStatus(const v1::JobStatus& status);

// Returns the factors of faults.stragglers.
std::map<uint32_t, double> SlowWorkersOf(const v1::Job& job);

struct Speeds {
  double step = 0;                  // the mean of workers that are not slow
  std::map<uint32_t, double> slow;  // the others: by how much their steps take longer
};
// `steps`: each worker's time of a step, at least one. A worker is slow from kSlowTimes the lower median on,
// so that chance and machines of nearly the same kind count as the spread of steps.
Speeds SpeedsOf(const std::map<uint32_t, double>& steps);
inline constexpr double kSlowTimes = 1.5;

}  // namespace catchment

#endif  // CATCHMENT_CLI_ADVISE_EVIDENCE_H_
