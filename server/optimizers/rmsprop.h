// RMSProp (Tieleman and Hinton 2012, "Neural networks for machine learning", lecture 6.5), as
// torch.optim.RMSprop:
//   v = rho * v + (1 - rho) * g * g
//   w -= lr * g / (sqrt(v) + epsilon)                                   without momentum
//   b = mu * b + g / (sqrt(v) + epsilon) ; w -= lr * b                  with momentum mu
// and centered (Graves 2013, arXiv:1308.0850), by an estimate of the gradient's variance in place of v:
//   a = rho * a + (1 - rho) * g ; sqrt(max(v - a * a, 0)) in place of sqrt(v)
// PyTorch calls rho alpha. It has no max: where a gradient hardly changes, rounding can make v - a * a
// negative, and there its weights become NaN. States: v, then b where there is momentum, then a where it is
// centered.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_
#define CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class RmsProp final : public Optimizer {
 public:
  RmsProp(float rho, float epsilon, float mu, bool centered)
      : rho_(rho), epsilon_(epsilon), mu_(mu), centered_(centered) {}
  std::vector<std::string> state_names() const override;
  void Apply(const Step& step, const Part& part) const override;

 private:
  template <bool kCentered, bool kMomentum>
  void ApplyAs(const Step& step, const Part& part) const;

  const float rho_;
  const float epsilon_;
  const float mu_;
  const bool centered_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_RMSPROP_H_
