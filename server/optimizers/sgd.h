// Stochastic gradient descent, with momentum as PyTorch has it (the learning rate outside the buffer):
//   SGD       w -= lr * g
//   momentum  v = mu * v + g ; w -= lr * v                    Polyak 1964
//   Nesterov  v = mu * v + g ; w -= lr * (g + mu * v)         Nesterov 1983, in the form of torch.optim.SGD
// The buffer begins at zero; PyTorch begins it at g, which is the same.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_SGD_H_
#define CATCHMENT_SERVER_OPTIMIZERS_SGD_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class Sgd final : public Optimizer {
 public:
  std::vector<std::string> state_names() const override { return {}; }
  void Apply(const Step& step, const Part& part) const override;
};

class Momentum final : public Optimizer {
 public:
  explicit Momentum(float mu) : mu_(mu) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float mu_;
};

class Nesterov final : public Optimizer {
 public:
  explicit Nesterov(float mu) : mu_(mu) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float mu_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_SGD_H_
