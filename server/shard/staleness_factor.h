// Reduces the learning rate for stale contributions, where tau is the staleness in versions when a
// contribution is applied:
//   inverse      eta / max(1, tau)          Zhang, Gupta, Lian, Liu 2015, arXiv:1511.05950
//   power        eta / (1 + tau)^exponent   1: DynSGD, Jiang, Cui, Zhang, Yu 2017
//   exponential  eta * exp(-rate * tau)
// The factor of a contribution without staleness is 1.
#ifndef CATCHMENT_SERVER_SHARD_STALENESS_FACTOR_H_
#define CATCHMENT_SERVER_SHARD_STALENESS_FACTOR_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace catchment {

// Returns the factor of the learning rate; 1 for a compensation of another kind.
double StalenessFactor(const v1::Compensation& compensation, uint64_t tau);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_STALENESS_FACTOR_H_
