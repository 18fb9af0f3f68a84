// Local SGD (McMahan et al. 2017, arXiv:1602.05629; Stich 2019, arXiv:1805.09767) and DiLoCo (Douillard et
// al. 2023, arXiv:2311.08105). The whole algorithm:
//   WORKER, every step:                x_i = local_optimizer(x_i, g)
//   WORKER, every local_steps (H):     push D = x_pulled - x_i ; x_i = x_pulled = pull()
//   server:                            D~ = sum_i b_i D_i / sum_i b_i  over the group ; w = optimizer(w, D~)
// D has the sign of a gradient: the optimizer moves against it. b_i is the number of samples of the round's H
// steps. The last round may be shorter, and is pushed too. A worker without samples in a round pushes D = 0
// with b_i = 0, which does not affect the average.
//
// With one group of all workers and SGD of learning rate 1 without momentum on the servers, w becomes the
// mean of the workers' weights; with Nesterov it is DiLoCo.
//
// Asynchronous DiLoCo (Liu et al. 2024, arXiv:2401.09135): no worker waits, H is each worker's own
// (Step::local_steps, which the master computes from the measured speeds), and the servers delay the momentum
// (optim/delayed_nesterov.h).
//
// Shapes: three vectors as long as the weights, and the local optimizer's state, which the worker keeps from
// round to round.
//
// Departures: after a D that was not finite the local optimizer restarts with the weights of the answer, a
// case that the papers do not mention.
#ifndef CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_
#define CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_

#include <memory>
#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "worker/algorithms/algorithm.h"

namespace catchment {

class PseudoGradient final : public Algorithm {
 public:
  // `clip_norm` is that of D. The local optimizer has its own for gradients.
  PseudoGradient(const v1::PseudoGradient& config, int64_t num_parameters, Parameters* parameters,
                 std::optional<float> clip_norm = {});

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  absl::Status Finish() override;
  void ListState(bool at_version, WorkerState* state) override;

 private:
  void Move(const Step& step, Gradient gradient);
  absl::Status Exchange();
  void ForgetOptimizer();

  const v1::PseudoGradient config_;
  const std::optional<float> clip_norm_;
  const std::unique_ptr<Optimizer> optimizer_;
  Parameters& parameters_;
  std::vector<float> x_;       // local weights
  std::vector<float> pulled_;  // weights at the beginning of the round
  std::vector<float> g_;       // gradient; at the end of a round D
  std::vector<std::vector<float>> states_;
  uint64_t moves_ = 0;  // updates by the local optimizer
  uint64_t total_steps_ = 0;
  // The state of the current round.
  uint32_t steps_ = 0;
  uint32_t samples_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_
