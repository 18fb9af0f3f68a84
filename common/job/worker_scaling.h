// The learning rate's scale by the workers that train (proto/job.proto, Optimizer.WorkerScaling):
//   LINEAR:      workers now / Job.workers
//   SQUARE_ROOT: its square root
// Source: Goyal et al. 2017, arXiv:1706.02677: an average over k times as many samples takes k times the
// step.
#ifndef CATCHMENT_COMMON_JOB_WORKER_SCALING_H_
#define CATCHMENT_COMMON_JOB_WORKER_SCALING_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace catchment {

// `active`: members that have work; what the last ones leave behind counts as of one. `workers`: Job.workers.
double WorkerScale(v1::Optimizer::WorkerScaling scaling, uint32_t active, uint32_t workers);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_WORKER_SCALING_H_
