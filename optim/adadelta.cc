// AdaDelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta:
//   v = rho * v + (1 - rho) * g * g
//   d = sqrt(u + epsilon) / sqrt(v + epsilon) * g
//   u = rho * u + (1 - rho) * d * d ; w -= lr * d
// The paper has no learning rate: lr = 1.
#include "optim/implementation.h"

namespace catchment {
namespace {

class Adadelta final : public Optimizer {
 public:
  Adadelta(float rho, float epsilon) : rho_(rho), epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float lr = step.learning_rate, rho = rho_, epsilon = epsilon_;
    float* __restrict v = part.states[0];
    float* __restrict u = part.states[1];
    OnePass(part, [=](float w, float g, int64_t i) {
      v[i] = rho * v[i] + (1 - rho) * g * g;
      const float d = std::sqrt(u[i] + epsilon) / std::sqrt(v[i] + epsilon) * g;
      u[i] = rho * u[i] + (1 - rho) * d * d;
      return w - lr * d;
    });
  }

 private:
  const float rho_;
  const float epsilon_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<Adadelta>(config.rho(), config.epsilon());
}

std::string Describe(const v1::Optimizer& config) {
  return absl::StrCat("AdaDelta: rho ", config.rho(), ", epsilon ", config.epsilon());
}

constexpr OptimizerField kFields[] = {{"learning_rate", 1}, {"rho", 0.9f}, {"epsilon", 1e-6f}};

}  // namespace

constexpr OptimizerKind kAdadelta = {
    .kind = v1::Optimizer::ADADELTA, .fields = kFields, .make = Make, .describe = Describe};

}  // namespace catchment
