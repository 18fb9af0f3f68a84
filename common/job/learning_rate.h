// The learning rate and the momentum over the progress of a job (proto/job.proto, Schedule).
#ifndef CATCHMENT_COMMON_JOB_LEARNING_RATE_H_
#define CATCHMENT_COMMON_JOB_LEARNING_RATE_H_

#include <optional>

#include "proto/job.pb.h"

namespace catchment {

// With p = progress, the share of the budget that has been applied, eta = learning_rate and w = warmup:
//   p >= w:  eta * c(q),          q = (p - w) / (1 - w)
//   p < w:   eta * c(0) * p / w   so that the decay continues where the warm-up ends
// c, with f = final_fraction and down(x) = f + (1 - f) (1 + cos(pi x)) / 2:
//   CONSTANT     1
//   COSINE       down(q)
//   STEP         factor^floor(q / step_every)
//   EXPONENTIAL  f^q
//   POLYNOMIAL   f + (1 - f) (1 - q)^power
//   ONE_CYCLE    q < s:           i + (1 - i) (1 - cos(pi q / s)) / 2, with s = pct_start and
//                                 i = initial_lr_fraction
//                from there on:   down((q - s) / (1 - s))
//   PLATEAU      1; its factor follows the test loss, and comes from the master (server/control/plateau.h)
// PyTorch's schedulers count steps t of T, with q = t / T. OneCycleLR reaches its end in its last step: q = t
// / (T - 1); s is (P T - 1) / (T - 1) for PyTorch's pct_start P, and i is 1 / div_factor. A progress outside
// [0, 1] counts as the nearer end. `optimizer` is one of a validated job.
double LearningRate(const v1::Optimizer& optimizer, double progress);

// Returns the momentum of an optimizer whose schedule cycles it, and nothing if it is constant. With M =
// momentum (beta1 where the kind has it), m = min_momentum, and q and s as above:
//   q < s:           m + (M - m) (1 + cos(pi q / s)) / 2         M during a warm-up
//   from there on:   M + (m - M) (1 + cos(pi (q - s) / (1 - s))) / 2
std::optional<float> CycledMomentum(const v1::Optimizer& optimizer, double progress);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_LEARNING_RATE_H_
