// AdaGrad (Duchi, Hazan, Singer 2011), as torch.optim.Adagrad with its defaults:
//   s += g * g ; w -= lr * g / (sqrt(s) + epsilon)
#include "optim/implementation.h"

namespace catchment {
namespace {

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(float epsilon) : epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"sum"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float lr = step.learning_rate, epsilon = epsilon_;
    float* __restrict s = part.states[0];
    OnePass(part, [=](float w, float g, int64_t i) {
      s[i] += g * g;
      return w - lr * g / (std::sqrt(s[i]) + epsilon);
    });
  }

 private:
  const float epsilon_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  return std::make_unique<Adagrad>(config.epsilon());
}

std::string Describe(const v1::Optimizer& config) {
  return absl::StrCat("AdaGrad: s += g*g ; w -= lr * g / (sqrt(s) + ", config.epsilon(), ")");
}

constexpr OptimizerField kFields[] = {{"learning_rate", 0.01f}, {"epsilon", 1e-10f}};

}  // namespace

constexpr OptimizerKind kAdagrad = {
    .kind = v1::Optimizer::ADAGRAD, .fields = kFields, .make = Make, .describe = Describe};

}  // namespace catchment
