// The learning rate and the momentum of a job, wherever its algorithm has them
// (common/job/contribution_kinds.h).
#ifndef CATCHMENT_CLI_JOB_HYPERPARAMETERS_H_
#define CATCHMENT_CLI_JOB_HYPERPARAMETERS_H_

#include <optional>

#include "proto/job.pb.h"

namespace catchment {

struct Hyperparameters {
  float learning_rate = 0;
  std::optional<float> momentum;  // empty: the optimizer has none
};

// Return or set those of a complete job.
Hyperparameters HyperparametersOf(const v1::Job& job);
void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job);

// Sets a constant learning rate, after the job's warm-up.
void KeepLearningRate(v1::Job* job);

// The values that a job sets before defaults.
struct GivenHyperparameters {
  std::optional<float> learning_rate;
  std::optional<float> momentum;
};

// The beginning of a search for both. A step is learning_rate / (1 - momentum), how far one gradient moves
// the weights in total.
struct SearchFacts {
  Hyperparameters own;         // of the complete job
  GivenHyperparameters set;    // by the changes of the command line
  GivenHyperparameters given;  // by the job file and the changes
  bool has_momentum = false;   // the kind of optimizer has one
  double usual_step = 0;       // of this kind of optimizer in a job without a learning rate
  // The largest step that the preset has for the job's workers, if the learning rate is that of the servers
  // (StepLimit).
  std::optional<double> limit;
};

// `given` has the algorithm, `complete` is the same job, complete and valid, and `set` has the changes alone.
SearchFacts SearchFactsOf(const v1::Job& given, const v1::Job& complete, const v1::Job& set);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_HYPERPARAMETERS_H_
