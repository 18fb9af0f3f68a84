// AdamW: Adam with decoupled weight decay (Loshchilov and Hutter 2019, arXiv:1711.05101), as
// torch.optim.AdamW:
//   w *= 1 - lr * weight_decay ; then Adam's step (adam.h)
// As in PyTorch the decay follows the learning rate; the paper multiplies it with the schedule alone.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_ADAMW_H_
#define CATCHMENT_SERVER_OPTIMIZERS_ADAMW_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class AdamW final : public Optimizer {
 public:
  AdamW(float beta1, float beta2, float epsilon, float weight_decay)
      : beta1_(beta1), beta2_(beta2), epsilon_(epsilon), weight_decay_(weight_decay) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float beta1_;
  const float beta2_;
  const float epsilon_;
  const float weight_decay_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_ADAMW_H_
