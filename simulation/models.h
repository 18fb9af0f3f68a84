// Models of a cluster, as the flags of `catchment simulate` describe it: the time of a step, the
// network, slow workers, and failures.
//
// Units: seconds, bytes. Errors of the parsers: InvalidArgument with the accepted forms.
#ifndef CATCHMENT_SIMULATION_MODELS_H_
#define CATCHMENT_SIMULATION_MODELS_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/random.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns the seconds of "120ms", "50us", "1.5s", "10m" or "2h".
absl::StatusOr<double> ParseDuration(const std::string& text);

// The distribution of a positive time. `mean` is its mean in every form.
struct Distribution {
  enum Kind { kConstant, kLogNormal, kExponential, kGamma };
  Kind kind = kConstant;
  double mean = 0;
  double shape = 0;  // kLogNormal: sigma, of the logarithm; kGamma: its shape

  double Sample(Random* random) const;
};
// Parses constant:120ms, lognormal:120ms:0.3, exponential:120ms or gamma:120ms:4.
absl::StatusOr<Distribution> ParseDistribution(const std::string& text);
std::string ToString(const Distribution& distribution);

// Parses the additional time of each worker's first step: a program compiles, and data and memory are not at
// hand yet. So workers push at different moments from the beginning. The text is none (a mean of 0), or a
// distribution: exponential:50ms.
absl::StatusOr<Distribution> ParseStart(const std::string& text);
std::string StartText(const Distribution& start);
// Returns that of workers of which nothing is known: exponential, with the mean of a step, so that their
// beginnings are as far apart as if they had trained for long.
Distribution UsualStart(const Distribution& step);

// Every process has a link to one switch, the same in both directions.
struct NetworkModel {
  double bytes_per_second = 0;  // of each link in each direction; 0: unlimited
  double latency = 0;           // from one process to another
};
// Parses 10Gbit:50us or unlimited:0us.
absl::StatusOr<NetworkModel> ParseNetwork(const std::string& text);
std::string ToString(const NetworkModel& network);

// Slow workers, or slow steps.
struct StragglerModel {
  std::string text;                // as given
  std::optional<uint32_t> worker;  // one worker
  double share = 0;       // or the share of the workers, the last ones, at least one of ten or more workers
  bool of_steps = false;  // the share is of the steps of all workers
  double times = 1;       // the factor of a step's time
};
// Parses 3:10x, 1%:10x or 1%steps:10x.
absl::StatusOr<StragglerModel> ParseStraggler(const std::string& text);
// Sets the workers of a job that are slow.
void SetStragglers(const StragglerModel& model, v1::Job* job);

// Workers fail at random, and come back.
struct FailureModel {
  double mean_seconds = 0;  // between two failures of a worker, exponentially distributed; 0: none
  double away_seconds = 0;  // until it is back
  bool hangs = false;       // its connections stay open until then, but nothing comes from it
};
// Parses 2h:30s or 2h:30s:hang.
absl::StatusOr<FailureModel> ParseFailures(const std::string& text);

// The gradient of a quadratic function in place of the model's.
struct QuadraticModel {
  double condition = 1;  // the ratio of the largest curvature, 1, to the smallest
  double noise = 0;      // standard deviation of each value of a minibatch's gradient
  // The training samples in an epoch, if the job does not state them; 0: those of its data, which are loaded.
  int64_t epoch_samples = 0;
};
// Parses quadratic:100:0.1.
absl::StatusOr<QuadraticModel> ParseQuadratic(const std::string& text);

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_MODELS_H_
