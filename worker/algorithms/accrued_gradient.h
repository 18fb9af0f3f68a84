// Downpour SGD (Dean et al. 2012, "Large scale distributed deep networks"), and with one group of all workers
// synchronous SGD. The whole algorithm:
//   WORKER, every step:         a += g ; x -= local_learning_rate * g
//   WORKER, every push_period:  push a ; a = 0
//   server:                     a~ = sum_i b_i a_i / sum_i b_i  over the group ; w = optimizer(w, a~)
//   WORKER, every fetch_period: x = pull()
// Where push and pull fall on one step they are one exchange: the weights come back with the answer.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
#define CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_

#include <vector>

#include "worker/algorithms/algorithm.h"

namespace catchment {

class AccruedGradient final : public Algorithm {
 public:
  AccruedGradient(const v1::AccruedGradient& config, int64_t num_parameters, Parameters* parameters);

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  absl::Status Finish() override;

 private:
  void Accrue(const Step& step, Gradient gradient);
  absl::Status Push(bool fetch);

  const v1::AccruedGradient config_;
  Parameters& parameters_;
  std::vector<float> x_;  // local weights
  std::vector<float> a_;  // accrued gradient
  std::vector<float> g_;  // used where a_ is more than one gradient
  uint64_t steps_ = 0;
  uint32_t samples_ = 0;  // in a_
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ACCRUED_GRADIENT_H_
