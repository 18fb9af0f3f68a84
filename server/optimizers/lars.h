// Layer-wise adaptive rate scaling (You, Gitman, Ginsburg 2017, arXiv:1708.03888), tensor by tensor:
//   g = min(max(g, -clip_value), clip_value)
//   r = trust * |w| / (|g| + weight_decay * |w|)  where |w| and |g| are above 0, otherwise 1
//   v = mu * v + lr * r * (g + weight_decay * w) ; w -= v
// |.|: the Euclidean norm over the whole tensor. Of all tensors, biases too, as in the paper; some
// implementations leave tensors of one dimension to plain momentum. The learning rate is in the buffer, as in
// the paper: momentum of torch.optim.SGD has it outside.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_LARS_H_
#define CATCHMENT_SERVER_OPTIMIZERS_LARS_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class Lars final : public Optimizer {
 public:
  // clip_value may be infinite.
  Lars(float mu, float trust, float weight_decay, float clip_value)
      : mu_(mu), trust_(trust), weight_decay_(weight_decay), clip_value_(clip_value) {}
  std::vector<std::string> state_names() const override { return {"momentum_buffer"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  double Ratio(const Part& tensor) const;

  const float mu_;
  const float trust_;
  const float weight_decay_;
  const float clip_value_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_LARS_H_
