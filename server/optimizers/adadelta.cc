#include "server/optimizers/adadelta.h"

#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

void Adadelta::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_;
  float* __restrict v = part.states[0];
  float* __restrict u = part.states[1];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = rho * v[i] + (1 - rho) * g * g;
    const float d = std::sqrt(u[i] + epsilon) / std::sqrt(v[i] + epsilon) * g;
    u[i] = rho * u[i] + (1 - rho) * d * d;
    return w - lr * d;
  });
}

}  // namespace catchment
