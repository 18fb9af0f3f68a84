#include "server/optimizers/adagrad.h"

#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

void Adagrad::Apply(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, epsilon = epsilon_;
  float* __restrict s = part.states[0];
  OnePass(part, [=](float w, float g, int64_t i) {
    s[i] += g * g;
    return w - lr * g / (std::sqrt(s[i]) + epsilon);
  });
}

}  // namespace catchment
