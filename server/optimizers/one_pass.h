// The loop that all optimizers share.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_ONE_PASS_H_
#define CATCHMENT_SERVER_OPTIMIZERS_ONE_PASS_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

// w[i] = update(w[i], g[i], i) for all i, and the copy. `update` is inlined, so that the loop vectorises.
template <typename Update>
inline void OnePass(const Optimizer::Part& part, Update update) {
  float* __restrict w = part.weights;
  const float* __restrict g = part.gradient;
  float* __restrict copy = part.copy;
  if (copy == nullptr) {
#pragma GCC ivdep
    for (int64_t i = 0; i < part.n; ++i) w[i] = update(w[i], g[i], i);
  } else {
#pragma GCC ivdep
    for (int64_t i = 0; i < part.n; ++i) copy[i] = w[i] = update(w[i], g[i], i);
  }
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_ONE_PASS_H_
