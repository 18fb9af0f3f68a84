#include "server/optimizers/adam.h"

#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

void Adam::Apply(const Step& step, const Part& part) const {
  const double t = static_cast<double>(step.number);
  const float rate = static_cast<float>(step.learning_rate / (1 - std::pow(double{beta1_}, t)));
  const float root = static_cast<float>(1 / std::sqrt(1 - std::pow(double{beta2_}, t)));
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
