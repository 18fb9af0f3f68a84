#include "optim/delayed_nesterov.h"

#include "optim/implementation.h"

namespace catchment {

void DelayedNesterov::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, mu = step.momentum.value_or(mu_);
  const float share = 1 / static_cast<float>(every_);
  float* __restrict m = part.states[0];
  float* __restrict sum = part.states[1];
  if (step.number % every_ != 0) {
    OnePass(part, [=](float w, float g, int64_t i) {
      sum[i] += g;
      return w - lr * share * g;
    });
    return;
  }
  OnePass(part, [=](float w, float g, int64_t i) {
    m[i] = mu * m[i] + share * (sum[i] + g);
    sum[i] = 0;
    return w - lr * (mu * m[i] + share * g);
  });
}

}  // namespace catchment
