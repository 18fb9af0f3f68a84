// AdaGrad (Duchi, Hazan, Singer 2011), as torch.optim.Adagrad with its defaults:
//   s += g * g ; w -= lr * g / (sqrt(s) + epsilon)
#ifndef CATCHMENT_SERVER_OPTIMIZERS_ADAGRAD_H_
#define CATCHMENT_SERVER_OPTIMIZERS_ADAGRAD_H_

#include "server/optimizers/optimizer.h"

namespace catchment {

class Adagrad final : public Optimizer {
 public:
  explicit Adagrad(float epsilon) : epsilon_(epsilon) {}
  std::vector<std::string> state_names() const override { return {"sum"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float epsilon_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_ADAGRAD_H_
