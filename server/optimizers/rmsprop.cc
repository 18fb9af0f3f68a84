#include "server/optimizers/rmsprop.h"

#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

void RmsProp::Apply(const Step& step, const Part& part) const {
  if (mu_ != 0) return ApplyMomentum(step, part);
  const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_;
  float* __restrict v = part.states[0];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = rho * v[i] + (1 - rho) * g * g;
    return w - lr * g / (std::sqrt(v[i]) + epsilon);
  });
}

void RmsProp::ApplyMomentum(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_, mu = mu_;
  float* __restrict v = part.states[0];
  float* __restrict b = part.states[1];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = rho * v[i] + (1 - rho) * g * g;
    b[i] = mu * b[i] + g / (std::sqrt(v[i]) + epsilon);
    return w - lr * b[i];
  });
}

}  // namespace catchment
