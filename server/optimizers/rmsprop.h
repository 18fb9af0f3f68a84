// RMSProp (Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5), as
// torch.optim.RMSprop:
//   v = rho * v + (1 - rho) * g * g
//   w -= lr * g / (sqrt(v) + epsilon)                                   without momentum
//   b = mu * b + g / (sqrt(v) + epsilon) ; w -= lr * b                  with momentum mu
// PyTorch calls rho alpha. Its `centered` is not offered.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_
#define CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class RmsProp final : public Optimizer {
 public:
  RmsProp(float rho, float epsilon, float mu) : rho_(rho), epsilon_(epsilon), mu_(mu) {}
  int num_states() const override { return mu_ == 0 ? 1 : 2; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  void ApplyMomentum(const Step& step, const Part& part) const;

  const float rho_;
  const float epsilon_;
  const float mu_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_
