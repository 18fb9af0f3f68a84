// Elastic averaging SGD, EASGD and EAMSGD (Zhang, Choromanska, LeCun 2015, arXiv:1412.6651). The whole algorithm,
// with x~ the center, every communication period:
//   SERVER: d_i = alpha * (x_i - x~)        all members of a group against the same x~
//           x~  = x~ + sum_i d_i            in worker order
//   worker: x_i = x_i - d_i
// and in every step x_i moves by the worker's own optimizer, with the gradient taken before the exchange.
// Asynchronous: groups of one. Synchronous: x~ becomes (1 - p alpha) x~ + p alpha mean(x_i).
// Conservation: an exchange leaves sum_i x_i + x~ as it was.
#ifndef CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_
#define CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_

#include "server/rules/rule.h"

namespace catchment {

class ElasticDifferenceRule final : public Rule {
 public:
  explicit ElasticDifferenceRule(float moving_rate) : alpha_(moving_rate) {}

  int num_states() const override { return 0; }
  bool has_answers() const override { return true; }
  bool Apply(absl::Span<const Contribution> contributions, const Center& center,
             float* weights_copy) const override;

 private:
  const float alpha_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_
