// Elastic averaging SGD (Zhang, Choromanska, LeCun 2015, arXiv:1412.6651). The whole algorithm, with x~ the
// center:
//   every communication_period steps, at the start of the step:
//     WORKER and server, in one exchange: d = alpha * (x_i - x~) ; x~ += d ; x_i -= d
//   every step, with the gradient taken at x_i as it was before the exchange:
//     WORKER, EASGD:  x_i -= eta * g
//     WORKER, EAMSGD: v = delta * v - eta * grad(x_i + delta * v) ; x_i += v      (momentum delta > 0)
// The exchange overlaps with the computation of the gradient: both read the same x_i, and neither changes it.
// Where a program keeps x_i and moves it, its exchange ends after the step: the same, but for rounding.
//
// Departures: one more exchange after the last step, so that it contributes; a worker whose weights are no
// longer finite restarts from the center, a case that the paper does not mention.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ELASTIC_DIFFERENCE_H_
#define CATCHMENT_WORKER_ALGORITHMS_ELASTIC_DIFFERENCE_H_

#include <memory_resource>
#include <vector>

#include "common/job/parameter_groups.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {

class ElasticDifference final : public Algorithm {
 public:
  // factors: of the optimizer's learning rate. `kept`: the weights that a program moves; null: the worker
  // moves its own. Must outlive the object.
  ElasticDifference(const v1::ElasticDifference& config, const v1::Optimizer& optimizer, RateFactors factors,
                    int64_t num_parameters, Parameters* parameters, LocalWeights* kept = nullptr);

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  absl::Status Finish() override;
  void ListState(bool at_version, WorkerState* state) override;

 private:
  absl::Status StartExchange();
  absl::Status FinishExchange();
  void TakeGradient(Gradient gradient);
  void Move(Range part, float eta);

  const v1::ElasticDifference config_;
  const v1::Optimizer optimizer_;
  const RateFactors factors_;
  float delta_;  // the momentum of this step
  Parameters& parameters_;
  LocalWeights* const kept_;   // null: these vectors, which are empty otherwise
  std::pmr::vector<float> x_;  // local weights
  std::vector<float> g_;
  std::vector<float> d_;      // elastic difference
  std::vector<float> v_;      // used with momentum
  std::vector<float> ahead_;  // x + delta v; used with momentum
  uint64_t steps_ = 0;
  uint64_t exchanged_steps_ = 0;  // steps before the last exchange
  uint64_t samples_ = 0;          // since the last exchange
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ELASTIC_DIFFERENCE_H_
