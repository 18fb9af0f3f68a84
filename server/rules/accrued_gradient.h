// Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks"), and with one group of all workers
// synchronous SGD. The whole algorithm:
//   worker, every step:         a += g ; x -= local_learning_rate * g
//   worker, every push_period:  push a ; a = 0
//   SERVER:                     a~ = sum_i b_i a_i / sum_i b_i  over the group, in worker order ;
//                               w = optimizer(w, a~)
//   worker, every fetch_period: x = pull()
// b_i: the samples behind worker i's contribution. A group of one leaves a as it is.
#ifndef CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_
#define CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_

#include <memory>

#include "server/optimizers/optimizer.h"
#include "server/rules/rule.h"

namespace catchment {

class AccruedGradientRule final : public Rule {
 public:
  explicit AccruedGradientRule(std::unique_ptr<Optimizer> optimizer) : optimizer_(std::move(optimizer)) {}

  int num_states() const override { return optimizer_->num_states(); }
  bool has_answers() const override { return false; }
  bool Apply(absl::Span<const Contribution> contributions, const Center& center,
             float* weights_copy) const override;

 private:
  const std::unique_ptr<Optimizer> optimizer_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_
