// Axis 1 of an algorithm, and what depends on it alone: what is out of range, and what does not go together.
#ifndef CATCHMENT_COMMON_JOB_CHECK_CONSISTENCY_H_
#define CATCHMENT_COMMON_JOB_CHECK_CONSISTENCY_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// algorithm.consistency, algorithm.emulated_delay and optimizer.worker_scaling of a job with its defaults
// filled in.
void CheckConsistency(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_CONSISTENCY_H_
