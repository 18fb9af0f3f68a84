// Gradient energy matching, GEM (Hermans and Louppe 2018, "Gradient energy matching for distributed
// asynchronous gradient descent", arXiv:1805.08469). All workers together should move the center as much as
// one worker with momentum would, the proxy: each scales its push to the distance that the center has not yet
// moved. The whole algorithm, elementwise, with x the weights at which the gradient was computed:
//   WORKER, every step: u = -eta * g ; m = mu * m + u            the proxy's step
//                       c = x - x of the step before             the center's move since
//                       pi = clip((kappa * |m| - |c|) / (|u| + 1e-16), 0, 5)
//                       push -pi * u ; x = pull()
//   server:             w -= the push
// c includes the worker's own last push, as in the authors' program. So a single worker is not SGD with
// momentum: it moves by |s_k| = kappa |m_k| - |s_{k-1}|, in the direction of -g_k, and of a gradient that
// stays the same by half of the proxy's step on average.
//
// The servers multiply by their learning rate, 1 times the schedule's factor. The worker leaves this factor
// out, so that it is not applied twice: it pushes pi * learning_rate * g, and the center moves by pi * u.
//
// Departures: the authors pull right before they push; here the answer to a push has the weights, so that one
// exchange in each step is enough, and the part of c from other workers is one step older. After a step that
// was not finite m restarts at 0.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_
#define CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_

#include <vector>

#include "proto/job.pb.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

class EnergyMatching final : public GradientTransform {
 public:
  // `optimizer` is that of the servers; its schedule is used.
  EnergyMatching(const v1::EnergyMatching& config, const v1::Optimizer& optimizer, int64_t num_parameters);

  void Start(absl::Span<const float> weights) override;
  void Begin(double progress) override;
  void Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) override;
  void Reset() override;
  void ListState(WorkerState* state) override;

 private:
  const v1::EnergyMatching config_;
  v1::Optimizer schedule_;  // with config_'s learning rate and the optimizer's schedule
  float eta_ = 0;           // in the current step
  std::vector<float> m_;
  std::vector<float> last_x_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_
