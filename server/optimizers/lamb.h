// LAMB (You et al. 2020, arXiv:1904.00962), tensor by tensor: at step t
//   g = min(max(g, -clip_value), clip_value)
//   m = beta1 * m + (1 - beta1) * g ; v = beta2 * v + (1 - beta2) * g * g
//   u = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) + epsilon) + weight_decay * w
//   r = |w| / |u|  where both are above 0, otherwise 1
//   w -= lr * r * u
// |.|: the Euclidean norm over the whole tensor. Of all tensors, biases too, as in the paper's algorithm,
// with its phi(|w|) = |w|; some implementations leave tensors of one dimension out, bound |w|, or have no
// bias correction. u is worked out twice, once for its norm, rather than kept.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_LAMB_H_
#define CATCHMENT_SERVER_OPTIMIZERS_LAMB_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class Lamb final : public Optimizer {
 public:
  // clip_value may be infinite.
  Lamb(float beta1, float beta2, float epsilon, float weight_decay, float clip_value)
      : beta1_(beta1),
        beta2_(beta2),
        epsilon_(epsilon),
        weight_decay_(weight_decay),
        clip_value_(clip_value) {}
  std::vector<std::string> state_names() const override { return {"exp_avg", "exp_avg_sq"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  void Average(const Part& tensor) const;
  void Move(const Step& step, const Part& tensor) const;

  const float beta1_;
  const float beta2_;
  const float epsilon_;
  const float weight_decay_;
  const float clip_value_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_LAMB_H_
