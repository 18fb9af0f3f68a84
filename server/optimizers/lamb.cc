#include "server/optimizers/lamb.h"

#include "server/optimizers/adam.h"
#include "server/optimizers/one_pass.h"
#include "server/optimizers/whole_tensors.h"

namespace catchment {

void Lamb::Apply(const Step& step, const Part& part) const {
  ForEachTensor(part, [&](const Part& tensor) {
    Average(tensor);
    Move(step, tensor);
  });
}

void Lamb::Average(const Part& tensor) const {
  const float beta1 = beta1_, beta2 = beta2_, clip_value = clip_value_;
  const float* __restrict gradient = tensor.gradient;
  float* __restrict m = tensor.states[0];
  float* __restrict v = tensor.states[1];
#pragma GCC ivdep
  for (int64_t i = 0; i < tensor.n; ++i) {
    const float g = Clip(gradient[i], clip_value);
    m[i] = beta1 * m[i] + (1 - beta1) * g;
    v[i] = beta2 * v[i] + (1 - beta2) * g * g;
  }
}

void Lamb::Move(const Step& step, const Part& tensor) const {
  const AdamCorrection correction({1, step.number}, beta1_, beta2_);
  const float scale = correction.rate, root = correction.root, epsilon = epsilon_, decay = weight_decay_;
  const float* const weights = tensor.weights;
  const float* const m = tensor.states[0];
  const float* const v = tensor.states[1];
  const auto u = [=](float w, int64_t i) {
    return scale * m[i] / (std::sqrt(v[i]) * root + epsilon) + decay * w;
  };
  const double w_norm = Norm(tensor.n, [=](int64_t i) { return weights[i]; });
  const double u_norm = Norm(tensor.n, [=](int64_t i) { return u(weights[i], i); });
  const double r = w_norm > 0 && u_norm > 0 ? w_norm / u_norm : 1;
  const float rate = FiniteRate(step.learning_rate * r);
  OnePass(tensor, [=](float w, float, int64_t i) { return w - rate * u(w, i); });
}

}  // namespace catchment
