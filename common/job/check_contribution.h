// Whether what workers send makes sense, by itself and with the servers' optimizer.
#ifndef CATCHMENT_COMMON_JOB_CHECK_CONTRIBUTION_H_
#define CATCHMENT_COMMON_JOB_CHECK_CONTRIBUTION_H_

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// Of a job whose contribution is of that kind.
void CheckPseudoGradient(const v1::Job& job, Problems* problems);
void CheckEnergyMatching(const v1::Job& job, Problems* problems);
void CheckLookAhead(const v1::Job& job, Problems* problems);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_CONTRIBUTION_H_
