// Whether a job's optimizer makes sense.
#ifndef CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_
#define CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// Every field's range, whether the kind has it, and what `elastic` contributions do not allow.
void CheckOptimizer(const v1::Optimizer& optimizer, bool elastic, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_OPTIMIZER_H_
