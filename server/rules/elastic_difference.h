// Elastic averaging SGD, EASGD and EAMSGD (Zhang, Choromanska, LeCun 2015, arXiv:1412.6651). The whole
// algorithm, with x~ the center, every communication period:
//   SERVER: d_i = alpha * (x_i - x~)        all members of a group against the same x~
//           x~  = x~ + sum_i d_i            in worker order
//   worker: x_i = x_i - d_i
// and in every step x_i moves by the worker's own optimizer, with the gradient taken before the exchange.
// Asynchronous: groups of one. Synchronous: x~ becomes (1 - p alpha) x~ + p alpha mean(x_i).
// Conservation: an exchange does not change sum_i x_i + x~.
// Departure from the paper: p may grow while the job runs. An exchange multiplies the distance between the
// center and the members' mean by 1 - (p + 1) alpha, which diverges for p > 2 / alpha - 1. An update of more
// members than the job planned for therefore uses alpha * planned / p, which keeps the paper's beta = p
// alpha.
#ifndef CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_
#define CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_

#include "server/rules/rule.h"

namespace catchment {

class ElasticDifferenceRule final : public Rule {
 public:
  // `planned_members`: the number of contributions to an update with the job's own number of workers; at
  // least 1.
  ElasticDifferenceRule(float moving_rate, int64_t planned_members)
      : moving_rate_(moving_rate), planned_members_(planned_members) {}

  std::vector<std::string> state_names() const override { return {}; }
  bool has_answers() const override { return true; }
  bool Apply(absl::Span<const Input> contributions, const Center& center, float* weights_copy) const override;

 private:
  // Returns alpha for an update of `members` contributions.
  float MovingRateFor(int64_t members) const;

  const float moving_rate_;
  const int64_t planned_members_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_ELASTIC_DIFFERENCE_H_
