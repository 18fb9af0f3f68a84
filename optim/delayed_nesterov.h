// SGD with Nesterov momentum that is applied once for every N gradients (Liu et al. 2024, "Asynchronous
// local-SGD training for language modeling", arXiv:2401.09135: the delayed Nesterov update):
//   s += g
//   t mod N = 0:  m = mu * m + s / N ; w -= lr * (mu * m + g / N) ; s = 0
//   otherwise:    w -= lr * g / N
// t: the number of the gradient, from 1. N gradients in a row move the weights as Nesterov's step with their
// mean does; with momentum in each of them, as Nesterov's has it, the momentum of stale gradients would move
// the weights N times as far.
//
// Departure: the paper's momentum activation, a share of the momentum's step that is made with each gradient,
// is 0, as in its experiments.
#ifndef CATCHMENT_OPTIM_DELAYED_NESTEROV_H_
#define CATCHMENT_OPTIM_DELAYED_NESTEROV_H_

#include <cstdint>
#include <string>
#include <vector>

#include "optim/optimizer.h"

namespace catchment {

class DelayedNesterov final : public Optimizer {
 public:
  // `every`: N, above 0.
  DelayedNesterov(float momentum, uint32_t every) : mu_(momentum), every_(every) {}

  std::vector<std::string> state_names() const override { return {"momentum_buffer", "gradient_sum"}; }
  void Apply(const Step& step, const Part& part) const override;

 private:
  const float mu_;
  const uint32_t every_;
};

}  // namespace catchment

#endif  // CATCHMENT_OPTIM_DELAYED_NESTEROV_H_
