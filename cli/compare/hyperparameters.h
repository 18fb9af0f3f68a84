// The learning rate and the momentum of a job, wherever its algorithm has them, and the small grid that a
// search tries: what Omnivore does (Hadjis et al. 2016, arXiv:1606.04487), once.
#ifndef CATCHMENT_CLI_COMPARE_HYPERPARAMETERS_H_
#define CATCHMENT_CLI_COMPARE_HYPERPARAMETERS_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "proto/job.pb.h"

namespace catchment {

struct Hyperparameters {
  float learning_rate = 0;
  std::optional<float> momentum;  // none: the optimizer has none
};

// By algorithm.
using FoundHyperparameters = std::map<std::string, Hyperparameters>;

// Return or set those of the job's kind of contribution (common/job/contribution_kinds.h). The job is complete.
Hyperparameters HyperparametersOf(const v1::Job& job);
void SetHyperparameters(const Hyperparameters& hyperparameters, v1::Job* job);

// {0, 0.3, 0.6, 0.9} x {learning rate, a tenth of it}; without momentum the latter alone.
std::vector<Hyperparameters> SearchGrid(const Hyperparameters& start);

// "learning rate 0.03, momentum 0.6".
std::string ToString(const Hyperparameters& hyperparameters);

}  // namespace catchment

#endif  // CATCHMENT_CLI_COMPARE_HYPERPARAMETERS_H_
