// What must hold of model.external and data.external.
#ifndef CATCHMENT_COMMON_JOB_CHECK_EXTERNAL_H_
#define CATCHMENT_COMMON_JOB_CHECK_EXTERNAL_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// `job` is complete and has at least one of the two.
void CheckExternal(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_EXTERNAL_H_
