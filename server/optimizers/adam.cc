#include "server/optimizers/adam.h"

#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

AdamCorrection::AdamCorrection(const Optimizer::Step& step, float beta1, float beta2) {
  const double t = static_cast<double>(step.number);
  rate = static_cast<float>(step.learning_rate / (1 - std::pow(double{beta1}, t)));
  root = static_cast<float>(1 / std::sqrt(1 - std::pow(double{beta2}, t)));
}

void Adam::Apply(const Step& step, const Part& part) const {
  const AdamCorrection correction(step, beta1_, beta2_);
  const float rate = correction.rate, root = correction.root;
  const float beta1 = beta1_, beta2 = beta2_, epsilon = epsilon_;
  float* __restrict m = part.states[0];
  float* __restrict v = part.states[1];
  OnePass(part, [=](float w, float g, int64_t i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    return w - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  });
}

}  // namespace catchment
