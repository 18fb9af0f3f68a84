// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101), as
// torch.optim.AdamW:
//   w *= 1 - lr * weight_decay ; then Adam's step (adam.cc)
// As in PyTorch the decay follows the learning rate; the paper multiplies it with the schedule alone.
#include "optim/implementation.h"

namespace catchment {
namespace {

class AdamW final : public Optimizer {
 public:
  AdamW(float beta1, float beta2, float epsilon, float weight_decay)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon), weight_decay_(weight_decay) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float beta1 = step.momentum.value_or(beta1_);
    const AdamCorrection correction(step, beta1, beta2_);
    const float rate = correction.rate, root = correction.root;
    const float beta2 = beta2_, epsilon = epsilon_;
    // The decay is subtracted, instead of multiplying w by 1 - decay: that factor, rounded to a float, would
    // be wrong by a rounding error in every step.
    const float decay = static_cast<float>(double{step.learning_rate} * weight_decay_);
    float* __restrict m = part.states[0];
    float* __restrict v = part.states[1];
    OnePass(part, [=](float w, float g, int64_t i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      return w - (decay * w + rate * m[i] / (std::sqrt(v[i]) * root + epsilon));
    });
  }

 private:
  const float beta1_;
  const float beta2_;
  const float epsilon_;
  const float weight_decay_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<AdamW>(config.beta1(), config.beta2(), config.epsilon(), config.weight_decay());
}

std::string Describe(const v1::Optimizer& config) {
  return absl::StrCat("AdamW: ", DescribeBetas(config), "; w *= 1 - lr * ", config.weight_decay(), " first");
}

constexpr OptimizerField kFields[] = {{"learning_rate", 0.001f},
                                      {"beta1", 0.9f},
                                      {"beta2", 0.999f},
                                      {"epsilon", 1e-8f},
                                      {"weight_decay", 0.01f}};

}  // namespace

constexpr OptimizerKind kAdamW = {.kind = v1::Optimizer::ADAMW,
                                  .decays_weights = true,
                                  .fields = kFields,
                                  .make = Make,
                                  .describe = Describe};

}  // namespace catchment
