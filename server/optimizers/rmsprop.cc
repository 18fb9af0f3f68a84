#include "server/optimizers/rmsprop.h"

#include <algorithm>
#include <cmath>

#include "server/optimizers/one_pass.h"

namespace catchment {

template <bool kCentered, bool kMomentum>
void RmsProp::ApplyAs(const Step& step, const Part& part) const {
  const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_, mu = mu_;
  float* __restrict v = part.states[0];
  float* __restrict b = part.states[1];
  float* __restrict a = part.states[kMomentum ? 2 : 1];
  OnePass(part, [=](float w, float g, int64_t i) {
    v[i] = rho * v[i] + (1 - rho) * g * g;
    float variance = v[i];
    if constexpr (kCentered) {
      a[i] = rho * a[i] + (1 - rho) * g;
      variance = std::max(variance - a[i] * a[i], 0.0f);
    }
    const float size = std::sqrt(variance) + epsilon;
    if constexpr (!kMomentum) return w - lr * g / size;
    b[i] = mu * b[i] + g / size;
    return w - lr * b[i];
  });
}

std::vector<std::string> RmsProp::state_names() const {
  std::vector<std::string> names = {"square_avg"};
  if (mu_ != 0) names.push_back("momentum_buffer");
  if (centered_) names.push_back("grad_avg");
  return names;
}

void RmsProp::Apply(const Step& step, const Part& part) const {
  if (centered_) return mu_ == 0 ? ApplyAs<true, false>(step, part) : ApplyAs<true, true>(step, part);
  return mu_ == 0 ? ApplyAs<false, false>(step, part) : ApplyAs<false, true>(step, part);
}

}  // namespace catchment
