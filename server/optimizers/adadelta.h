// AdaDelta (Zeiler 2012, arXiv:1212.5701), as torch.optim.Adadelta:
//   v = rho * v + (1 - rho) * g * g
//   d = sqrt(u + epsilon) / sqrt(v + epsilon) * g
//   u = rho * u + (1 - rho) * d * d ; w -= lr * d
// The paper has no learning rate: lr = 1.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_ADADELTA_H_
#define CATCHMENT_SERVER_OPTIMIZERS_ADADELTA_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class Adadelta final : public Optimizer {
 public:
  Adadelta(float rho, float epsilon) : rho_(rho), epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"square_avg", "acc_delta"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float rho_;
  const float epsilon_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_ADADELTA_H_
