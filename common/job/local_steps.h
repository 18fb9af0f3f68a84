// Jobs of programs that make their local steps themselves, with an optimizer of their own (proto/job.proto,
// ExternalModel.local_steps).
#ifndef CATCHMENT_COMMON_JOB_LOCAL_STEPS_H_
#define CATCHMENT_COMMON_JOB_LOCAL_STEPS_H_

#include "absl/status/status.h"
#include "proto/job.pb.h"

namespace catchment {

// Returns the optimizer whose step is w -= g.
const v1::Optimizer& IdentityOptimizer();

// Returns ok if a worker's step between two exchanges is w -= g, g being what the program reports. `job`
// is complete and valid. InvalidArgument says what to set.
absl::Status CheckLocalSteps(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_LOCAL_STEPS_H_
