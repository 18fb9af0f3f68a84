// Stochastic gradient descent, with momentum as PyTorch has it (the learning rate outside the buffer):
//   SGD       w -= lr * g
//   momentum  v = mu * v + g ; w -= lr * v                    Polyak 1964
//   Nesterov  v = mu * v + g ; w -= lr * (g + mu * v)         Nesterov 1983, in the form of torch.optim.SGD
// The buffer begins at zero; PyTorch begins it at g, which is the same.
#include "optim/implementation.h"

namespace catchment {
namespace {

class Sgd final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }

  void Apply(const Step& step, const Part& part) const override {
    const float lr = step.learning_rate;
    OnePass(part, [=](float w, float g, int64_t) { return w - lr * g; });
  }
};

class Momentum final : public Optimizer {
 public:
  explicit Momentum(float mu) : mu_(mu) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float lr = step.learning_rate, mu = step.momentum.value_or(mu_);
    float* __restrict v = part.states[0];
    OnePass(part, [=](float w, float g, int64_t i) {
      v[i] = mu * v[i] + g;
      return w - lr * v[i];
    });
  }

 private:
  const float mu_;
};

class Nesterov final : public Optimizer {
 public:
  explicit Nesterov(float mu) : mu_(mu) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }

  void Apply(const Step& step, const Part& part) const override {
    const float lr = step.learning_rate, mu = step.momentum.value_or(mu_);
    float* __restrict v = part.states[0];
    OnePass(part, [=](float w, float g, int64_t i) {
      v[i] = mu * v[i] + g;
      return w - lr * (g + mu * v[i]);
    });
  }

 private:
  const float mu_;
};

std::unique_ptr<Optimizer> Make(const v1::Optimizer& config) {
  if (config.momentum() == 0) return std::make_unique<Sgd>();
  if (config.nesterov()) return std::make_unique<Nesterov>(config.momentum());
  return std::make_unique<Momentum>(config.momentum());
}

std::string Describe(const v1::Optimizer& config) {
  const float mu = config.momentum();
  if (mu == 0) return "SGD: w -= lr * g";
  return config.nesterov()
             ? absl::StrCat("SGD with Nesterov momentum: v = ", mu, " * v + g ; w -= lr * (g + ", mu, " * v)")
             : absl::StrCat("SGD with momentum: v = ", mu, " * v + g ; w -= lr * v");
}

// The presets set the learning rate and the momentum, if SGD is their optimizer.
constexpr OptimizerField kFields[] = {{"learning_rate", 0.01f}, {"momentum"}, {"nesterov"}};

}  // namespace

constexpr OptimizerKind kSgd = {
    .kind = v1::Optimizer::SGD, .fields = kFields, .make = Make, .describe = Describe};

}  // namespace catchment
