#include "server/optimizers/sgd.h"

#include "server/optimizers/one_pass.h"

namespace catchment {

void Sgd::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate;
  OnePass(part, [=](float w, float g, int64_t) { return w - lr * g; });
}

void Momentum::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, mu = step.momentum.value_or(mu_);
  float* __restrict v = part.states[0];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = mu * v[i] + g;
    return w - lr * v[i];
  });
}

void Nesterov::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, mu = step.momentum.value_or(mu_);
  float* __restrict v = part.states[0];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = mu * v[i] + g;
    return w - lr * (g + mu * v[i]);
  });
}

}  // namespace catchment
