// Adam (Kingma and Ba 2015, arXiv:1412.6980), as torch.optim.Adam: at step t
//   m = beta1 * m + (1 - beta1) * g ; v = beta2 * v + (1 - beta2) * g * g
//   w -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon)
#include "optim/implementation.h"

namespace catchment {
namespace {

class Adam final : public Optimizer {
 public:
  Adam(float beta1, float beta2, float epsilon) : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float beta1 = step.momentum.value_or(beta1_);
    const AdamCorrection correction(step, beta1, beta2_);
    const float rate = correction.rate, root = correction.root;
    const float beta2 = beta2_, epsilon = epsilon_;
    float* __restrict m = part.states[0];
    float* __restrict v = part.states[1];
    OnePass(part, [=](float w, float g, int64_t i) {
      m[i] = beta1 * m[i] + (1 - beta1) * g;
      v[i] = beta2 * v[i] + (1 - beta2) * g * g;
      return w - rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
    });
  }

 private:
  const float beta1_;
  const float beta2_;
  const float epsilon_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<Adam>(config.beta1(), config.beta2(), config.epsilon());
}

std::string Describe(const v1::Optimizer& config) { return "Adam: " + DescribeBetas(config); }

constexpr OptimizerField kFields[] = {
    {"learning_rate", 0.001f}, {"beta1", 0.9f}, {"beta2", 0.999f}, {"epsilon", 1e-8f}};

}  // namespace

constexpr OptimizerKind kAdam = {
    .kind = v1::Optimizer::ADAM, .fields = kFields, .make = Make, .describe = Describe};

}  // namespace catchment
