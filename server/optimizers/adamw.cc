#include "server/optimizers/adamw.h"

#include <cmath>

#include "server/optimizers/adam.h"
#include "server/optimizers/one_pass.h"

namespace catchment {

void AdamW::Apply(const Step& step, const Part& part) const {
  const AdamCorrection correction(step, beta1_, beta2_);
  const float rate = correction.rate, root = correction.root;
  const float beta1 = beta1_, beta2 = beta2_, epsilon = epsilon_;
  // Taken off, and not multiplied with 1 - decay, which rounded to a float is wrong by as much in every step.
  const float decay = static_cast<float>(double{step.learning_rate} * weight_decay_);
  float* __restrict m = part.states[0];
  float* __restrict v = part.states[1];
  OnePass(part, [=](float w, float g, int64_t i) {
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
    return w - (decay * w + rate * m[i] / (std::sqrt(v[i]) * root + epsilon));
  });
}

}  // namespace catchment
