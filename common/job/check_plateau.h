// Whether schedule PLATEAU has what it follows, and moves what it is meant to.
#ifndef CATCHMENT_COMMON_JOB_CHECK_PLATEAU_H_
#define CATCHMENT_COMMON_JOB_CHECK_PLATEAU_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// That there is a test loss, that the servers apply the learning rate, and that the job does not ask for the
// same bits on every run.
void CheckPlateau(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_PLATEAU_H_
