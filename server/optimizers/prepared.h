// What is done to a gradient before any optimizer sees it, as in PyTorch:
//   g = min(max(g, -clip_value), clip_value)      torch.nn.utils.clip_grad_value_
//   g = g + weight_decay * w                      coupled weight decay (L2), `weight_decay` of torch.optim
#ifndef CATCHMENT_SERVER_OPTIMIZERS_PREPARED_H_
#define CATCHMENT_SERVER_OPTIMIZERS_PREPARED_H_

#include <memory>

#include "server/optimizers/optimizer.h"

namespace catchment {

// Another optimizer on prepared gradients, an elementwise one: it gets them in pieces.
class Prepared final : public Optimizer {
 public:
  // clip_value may be infinite.
  Prepared(float clip_value, float weight_decay, std::unique_ptr<Optimizer> optimizer)
      : clip_value_(clip_value), weight_decay_(weight_decay), optimizer_(std::move(optimizer)) {}
  std::vector<std::string> state_names() const override { return optimizer_->state_names(); }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float clip_value_;
  const float weight_decay_;
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_PREPARED_H_
