// Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks"), and with one group of all workers
// synchronous SGD. The whole algorithm:
//   worker, every step:         a += g ; x -= local_learning_rate * g
//   worker, every push_period:  push a ; a = 0
//   SERVER:                     a~ = sum_i b_i a_i / sum_i b_i  over the group, in worker order ;
//                               w = optimizer(w, a~)
//   worker, every fetch_period: x = pull()
// b_i: the samples of worker i's contribution. A group of one leaves a unchanged. Pseudo-gradients,
// look-ahead momentum and energy matching differ only on the worker: here a is the pushed vector.
//
// If the job compensates for staleness (gradient_compensation.h), each a_i is first corrected, and has a
// factor s_i of the learning rate eta:
//   STEP      a~ = sum_i b_i s_i a_i / sum_i b_i s_i ;  eta' = eta * sum_i b_i s_i / sum_i b_i
//   GRADIENT  a~ = sum_i b_i s_i a_i / sum_i b_i ;      eta' = eta
// Both are eta * sum_i b_i s_i a_i / sum_i b_i for SGD without momentum; an optimizer's moments average a~.
#ifndef CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_
#define CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_

#include <memory>

#include "optim/optimizer.h"
#include "server/rules/gradient_compensation.h"
#include "server/rules/rule.h"

namespace catchment {

class AccruedGradientRule final : public Rule {
 public:
  // `gradient_compensation` may be null.
  AccruedGradientRule(std::unique_ptr<Optimizer> optimizer, v1::Compensation compensation,
                      std::unique_ptr<GradientCompensation> gradient_compensation)
      : optimizer_(std::move(optimizer)),
        compensation_(std::move(compensation)),
        gradient_compensation_(std::move(gradient_compensation)),
        optimizer_states_(optimizer_->num_states()) {}

  std::vector<std::string> state_names() const override;
  bool has_answers() const override { return false; }
  bool needs_sent_weights() const override { return gradient_compensation_ != nullptr; }
  bool changes_single() const override {
    return gradient_compensation_ != nullptr || compensation_.of() == v1::Compensation::GRADIENT;
  }
  bool Apply(absl::Span<const Input> contributions, const Center& center, float* weights_copy) const override;

 private:
  // The sum of the contributions' samples and weights.
  struct Sum {
    int contributions = 0;
    double samples = 0;
    double weight = 0;     // samples, each times the factor of its contribution
    double staleness = 0;  // the sum over the samples, as measured
    double divisor = 0;    // of the average: `weight`, or `samples` if the factors are of the gradient
    const Input* first = nullptr;
    // Returns true if the average is that of the contributions times a factor.
    bool scaled() const { return weight != divisor; }
  };

  bool has_compensation_state() const;
  float* compensation_state(const Center& center) const;
  // Returns the contribution's samples times its factor.
  double Weight(const Input& contribution) const;
  Sum SumUp(absl::Span<const Input> contributions) const;
  void ApplyInPieces(absl::Span<const Input> contributions, const Sum& sum, const Optimizer::Step& step,
                     const Center& center, const Optimizer::Part& block) const;
  // Writes values begin .. begin+n-1 of the gradient to apply; n is at most the size of a piece.
  void Combine(absl::Span<const Input> contributions, const Sum& sum, const Center& center, int64_t begin,
               int64_t n, float* out) const;
  void Average(absl::Span<const Input> contributions, double divisor, const Rule::Sum* sum, int64_t begin,
               int64_t n, float* average) const;
  // Adds these values to the spread of the contributions.
  void AddSpread(absl::Span<const Input> contributions, int64_t begin, int64_t n, const float* average,
                 ContributionSpread* spread) const;
  void AverageCompensated(absl::Span<const Input> contributions, double divisor, const Center& center,
                          int64_t begin, int64_t n, float* average) const;

  const std::unique_ptr<Optimizer> optimizer_;
  const v1::Compensation compensation_;
  const std::unique_ptr<GradientCompensation> gradient_compensation_;
  const int optimizer_states_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_ACCRUED_GRADIENT_H_
