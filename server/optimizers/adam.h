// Adam (Kingma and Ba 2015, arXiv:1412.6980), as torch.optim.Adam: at step t
//   m = beta1 * m + (1 - beta1) * g ; v = beta2 * v + (1 - beta2) * g * g
//   w -= lr / (1 - beta1^t) * m / (sqrt(v / (1 - beta2^t)) + epsilon)
#ifndef CATCHMENT_SERVER_OPTIMIZERS_ADAM_H_
#define CATCHMENT_SERVER_OPTIMIZERS_ADAM_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

// Of a step, for all parameters.
struct AdamCorrection {
  AdamCorrection(const Optimizer::Step& step, float beta1, float beta2);

  float rate;  // lr / (1 - beta1^t)
  float root;  // 1 / sqrt(1 - beta2^t)
};

class Adam final : public Optimizer {
 public:
  Adam(float beta1, float beta2, float epsilon) : beta1_(beta1), beta2_(beta2), epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float beta1_;
  const float beta2_;
  const float epsilon_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_ADAM_H_
