// What a job's consistency makes of a run (proto/job.proto, Consistency).
#ifndef CATCHMENT_COMMON_JOB_CONSISTENCY_H_
#define CATCHMENT_COMMON_JOB_CONSISTENCY_H_

#include "proto/job.pb.h"

namespace catchment {

// Every update is made of a contribution of every worker: steps can be planned, and a run repeated. Complete
// and valid, or complete but for the defaults.
inline bool IsSynchronous(const v1::Consistency& consistency) {
  return consistency.groups() == 1 && consistency.spare_workers() == 0;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CONSISTENCY_H_
