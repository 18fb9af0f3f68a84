// Models of a cluster: the time of a step, the network, and failures.
//
// Units: seconds, bytes.
#ifndef CATCHMENT_SIMULATION_MODELS_H_
#define CATCHMENT_SIMULATION_MODELS_H_

#include <cstdint>

#include "common/base/random.h"

namespace catchment {

// The distribution of a positive time. `mean` is its mean in every form.
struct Distribution {
  enum Kind { kConstant, kLogNormal, kExponential, kGamma };
  Kind kind = kConstant;
  double mean = 0;
  double shape = 0;  // kLogNormal: sigma, of the logarithm; kGamma: its shape

  double Sample(Random* random) const;
};

// Every process has a link to one switch, the same in both directions.
struct NetworkModel {
  double bytes_per_second = 0;  // of each link in each direction; 0: unlimited
  double latency = 0;           // from one process to another
};

// Workers fail at random, and come back.
struct FailureModel {
  double mean_seconds = 0;  // between two failures of a worker, exponentially distributed; 0: none
  double away_seconds = 0;  // until it is back
  bool hangs = false;       // its connections stay open until then, but nothing comes from it
};

// The gradient of a quadratic function in place of the model's.
struct QuadraticModel {
  double condition = 1;  // the ratio of the largest curvature, 1, to the smallest
  double noise = 0;      // standard deviation of each value of a minibatch's gradient
  // The training samples in an epoch, if the job does not state them; 0: those of its data, which are loaded.
  int64_t epoch_samples = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SIMULATION_MODELS_H_
