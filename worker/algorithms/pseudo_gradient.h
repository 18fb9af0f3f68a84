// Local SGD (McMahan et al. 2017, arXiv:1602.05629; Stich 2019, arXiv:1805.09767), DiLoCo (Douillard et al.
// 2023, arXiv:2311.08105) and Streaming DiLoCo (Douillard et al. 2025, arXiv:2501.18512). The whole
// algorithm:
//   WORKER, every step:                x_i = local_optimizer(x_i, g)
//   WORKER, every local_steps (H):     push D = y_i - x_i ; y_i = pull() ; x_i = y_i
//   server:                            D~ = sum_i b_i D_i / sum_i b_i  over the group ; w = optimizer(w, D~)
// y_i are the weights that the worker pulled last. D has the sign of a gradient: the optimizer moves against
// it. b_i is the number of samples of the round's H steps. The last round may be shorter, and is pushed too.
// A worker without samples in a round pushes D = 0 with b_i = 0, which does not affect the average.
//
// With one group of all workers and SGD of learning rate 1 without momentum on the servers, w becomes the
// mean of the workers' weights; with Nesterov it is DiLoCo.
//
// Fragments (P): the second line is executed for each fragment of the weights (ParameterLayout::fragment),
// for fragment p at the steps ceil((p + 1) H / P) of the rounds. At the end of a synchronous job
// (Step::left), all fragments are pushed at the end of the last round, so that no step remains unsent.
//
// Overlap (tau) and blend (alpha): the worker continues with its own weights while the answer is awaited, and
// uses it tau steps later. The local optimizer's state does not change:
//   WORKER, step t:                    push D = y_i - x_i
//   WORKER, step t + tau:              y_i = answer ; x_i = alpha x_i + (1 - alpha) y_i
// In jobs that are not synchronous, the answer is used after the first step at whose end it has arrived, and
// before the fragment is pushed again.
//
// Asynchronous DiLoCo (Liu et al. 2024, arXiv:2401.09135): no worker waits, H is each worker's own
// (Step::local_steps, which the master computes from the measured speeds), and the servers delay the momentum
// (optim/delayed_nesterov.h).
//
// Decoupled DiLoCo (Douillard et al. 2026, arXiv:2604.21428): when a server has called for a fragment, a
// worker sends the D of fewer steps at the end of its step (server/shard/quorum.h).
//
// Shapes: three vectors as long as the weights, a fourth one with overlap, and the local optimizer's state,
// which the worker keeps from round to round. Where a program keeps x, g and its optimizer, there are only y
// and D.
//
// Departures: after a D that was not finite the local optimizer restarts with the center's weights, a case
// that the papers do not mention. A fragment's samples are counted from one push to the next, not from its
// last arrival, so that each is in one push.
#ifndef CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_
#define CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_

#include <memory>
#include <optional>
#include <vector>

#include "optim/optimizer.h"
#include "worker/algorithms/algorithm.h"
#include "worker/local_weights.h"

namespace catchment {

class PseudoGradient final : public Algorithm {
 public:
  struct Options {
    // Limits D, or a fragment's D. The local optimizer has its own for gradients.
    std::optional<float> clip_norm;
    bool synchronous = false;
  };
  // `local_optimizer` moves the worker's weights. `kept`: the weights that a program moves instead; it must
  // outlive the object. One of the two is null.
  PseudoGradient(const v1::PseudoGradient& config, int64_t num_parameters, Parameters* parameters,
                 const Options& options, std::unique_ptr<Optimizer> local_optimizer, LocalWeights* kept);
  ~PseudoGradient() override;

  absl::Status Start(uint64_t version) override;
  absl::Status Run(const Step& step, Gradient gradient) override;
  absl::Status Settle() override;
  absl::Status Finish() override;
  void ListState(bool at_version, WorkerState* state) override;

 private:
  class OwnWeights;

  struct Fragment {
    std::vector<Range> ranges;
    // Since the last push.
    uint64_t steps = 0;
    uint64_t samples = 0;
    uint64_t pushed = 0;  // 1: at its own step of the last round, so that the next push is due H steps later
    // The push in progress.
    uint64_t in_flight = 0;  // 1: there is one
    uint64_t answered = 0;   // 1: the answer is in pulled_
    uint64_t uses_in = 0;    // synchronous mode: steps
    bool non_finite = false;
  };

  bool IsDue(int fragment, const Step& step) const;
  // Uses the answers that are due at the end of a step.
  absl::Status UseAnswers();
  absl::Status Push(int fragment);
  // Waits for the answer to a push.
  absl::Status Await(int fragment);
  absl::Status Use(int fragment);
  // Continues with the center's weights.
  absl::Status Restart();

  const v1::PseudoGradient config_;
  const Options options_;
  Parameters& parameters_;
  std::vector<Fragment> fragments_;
  const std::unique_ptr<OwnWeights> own_;  // null: a program keeps them
  LocalWeights& weights_;
  uint64_t total_steps_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_PSEUDO_GRADIENT_H_
