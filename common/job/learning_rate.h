// The learning rate's course over a job (proto/job.proto, Schedule).
#ifndef CATCHMENT_COMMON_JOB_LEARNING_RATE_H_
#define CATCHMENT_COMMON_JOB_LEARNING_RATE_H_

#include "proto/job.pb.h"

namespace catchment {

// With p = progress, the share of the budget that has been applied, eta = learning_rate, w = warmup and
// f = final_fraction:
//   p < w:      eta p / w
//   CONSTANT:   eta
//   COSINE:     eta (f + (1 - f) (1 + cos(pi q)) / 2),  q = (p - w) / (1 - w)
// A progress outside [0, 1] counts as the nearer end. `optimizer` is one of a validated job.
double LearningRate(const v1::Optimizer& optimizer, double progress);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_LEARNING_RATE_H_
