// Checks the optimizer of a job.
#ifndef CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_
#define CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_

#include <string>

#include "absl/functional/function_ref.h"
#include "common/job/problems.h"
#include "optim/optimizer.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns the names of the kinds that `fits` accepts: "SGD, ADAGRAD or ADAM".
std::string ListOptimizerKinds(absl::FunctionRef<bool(const OptimizerKind&)> fits);

// Checks that the optimizer's kind has each field that is set, the range of each field, and, with `elastic`,
// what contribution elastic does not allow.
void CheckOptimizer(const v1::Optimizer& optimizer, bool elastic, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_
