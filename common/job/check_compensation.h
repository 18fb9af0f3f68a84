// Axis 3 of a job's algorithm: its fields, and what it goes together with.
#ifndef CATCHMENT_COMMON_JOB_CHECK_COMPENSATION_H_
#define CATCHMENT_COMMON_JOB_CHECK_COMPENSATION_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// `job` has its defaults.
void CheckCompensation(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_COMPENSATION_H_
