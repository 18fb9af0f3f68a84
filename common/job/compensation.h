// What a job's compensation makes of a run (proto/job.proto, Compensation).
#ifndef CATCHMENT_COMMON_JOB_COMPENSATION_H_
#define CATCHMENT_COMMON_JOB_COMPENSATION_H_

#include "proto/job.pb.h"

namespace catchment {

// It corrects gradients by how far the center has gone since their workers were sent theirs: servers keep what
// each worker was sent.
inline bool CorrectsGradients(const v1::Compensation& compensation) {
  return compensation.has_delay_compensated() || compensation.has_gap_aware();
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_COMPENSATION_H_
