#include "server/optimizers/lars.h"

#include "server/optimizers/one_pass.h"
#include "server/optimizers/whole_tensors.h"

namespace catchment {

void Lars::Apply(const Step& step, const Part& part) const {
  const float mu = mu_, decay = weight_decay_, clip_value = clip_value_;
  ForEachTensor(part, [&](const Part& tensor) {
    const float rate = FiniteRate(step.learning_rate * Ratio(tensor));
    float* __restrict v = tensor.states[0];
    OnePass(tensor, [=](float w, float g, int64_t i) {
      v[i] = mu * v[i] + rate * (Clip(g, clip_value) + decay * w);
      return w - v[i];
    });
  });
}

double Lars::Ratio(const Part& tensor) const {
  const float* const weights = tensor.weights;
  const float* const gradient = tensor.gradient;
  const float clip_value = clip_value_;
  const double w = Norm(tensor.n, [=](int64_t i) { return weights[i]; });
  const double g = Norm(tensor.n, [=](int64_t i) { return Clip(gradient[i], clip_value); });
  return w > 0 && g > 0 ? trust_ * w / (g + weight_decay_ * w) : 1;
}

}  // namespace catchment
