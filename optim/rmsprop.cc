// RMSProp (Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5), as
// torch.optim.RMSprop:
//   v = rho * v + (1 - rho) * g * g
//   w -= lr * g / (sqrt(v) + epsilon)                                   without momentum
//   b = mu * b + g / (sqrt(v) + epsilon) ; w -= lr * b                  with momentum mu
// and centered (Graves 2013, arXiv:1308.0850), with an estimate of the gradient's variance instead of v:
//   a = rho * a + (1 - rho) * g ; sqrt(max(v - a * a, 0)) instead of sqrt(v)
// PyTorch calls rho alpha. It has no max: if a gradient hardly changes, rounding can make v - a * a
// negative, and its weights become NaN. States: v, then b with momentum, then a if centered.
#include "optim/implementation.h"

namespace catchment {
namespace {

class RmsProp final : public Optimizer {
 public:
  RmsProp(float rho, float epsilon, float mu, bool centered)
      : rho_(rho), epsilon_(epsilon), mu_(mu), centered_(centered) {}

  std::vector<std::string> state_names() const override {
    std::vector<std::string> names = {"square_avg"};
    if (mu_ != 0) names.push_back("momentum_buffer");
    if (centered_) names.push_back("grad_avg");
    return names;
  }

  void Apply(const Step& step, const Part& part) const override {
    if (centered_) return mu_ == 0 ? ApplyAs<true, false>(step, part) : ApplyAs<true, true>(step, part);
    return mu_ == 0 ? ApplyAs<false, false>(step, part) : ApplyAs<false, true>(step, part);
  }

 private:
  template <bool kCentered, bool kMomentum>
  void ApplyAs(const Step& step, const Part& part) const {
    const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_, mu = step.momentum.value_or(mu_);
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

  const float rho_;
  const float epsilon_;
  const float mu_;
  const bool centered_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<RmsProp>(config.rho(), config.epsilon(), config.momentum(), config.centered());
}

std::string Describe(const v1::Optimizer& config) {
  return absl::StrCat(config.centered() ? "RMSProp, centered: rho " : "RMSProp: rho ", config.rho(),
                      ", epsilon ", config.epsilon(),
                      config.momentum() == 0 ? "" : absl::StrCat(", momentum ", config.momentum()));
}

constexpr OptimizerField kFields[] = {
    {"learning_rate", 0.01f}, {"momentum"}, {"rho", 0.99f}, {"epsilon", 1e-8f}, {"centered", 0}};

}  // namespace

constexpr OptimizerKind kRmsProp = {
    .kind = v1::Optimizer::RMSPROP, .fields = kFields, .make = Make, .describe = Describe};

}  // namespace catchment
