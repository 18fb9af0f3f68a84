// job.computation: what a CUDA device multiplies matrices in.
#ifndef CATCHMENT_COMMON_JOB_CHECK_COMPUTATION_H_
#define CATCHMENT_COMMON_JOB_CHECK_COMPUTATION_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// Of a job with defaults.
void CheckComputation(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_COMPUTATION_H_
