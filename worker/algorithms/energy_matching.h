// Gradient energy matching, GEM (Hermans and Louppe 2018, "Gradient energy matching for distributed
// asynchronous gradient descent", arXiv:1805.08469). All workers together are to move the center as much as
// one worker with momentum would, the proxy: each scales what it pushes so that it fills up what the center
// has not moved yet. The whole algorithm, elementwise, with x the weights that the gradient was taken at:
//   WORKER, every step: u = -eta * g ; m = mu * m + u            the proxy's step
//                       c = x - x of the step before             the center's move since
//                       pi = clip((kappa * |m| - |c|) / (|u| + 1e-16), 0, 5)
//                       push -pi * u ; x = pull()
//   server:             w -= what was pushed
// c has the worker's own last push in it, as in the authors' program. So a lone worker is not SGD with
// momentum: it moves by |s_k| = kappa |m_k| - |s_{k-1}|, in the direction of -g_k, and of a gradient that
// stays the same by half of the proxy's step on average.
//
// The servers' learning rate, 1 times the schedule's course, is taken out of what is pushed, or it would
// count twice: pushed is pi * learning_rate * g, and the center moves by pi * u.
//
// Departures: the authors pull right before they push; here weights come with the answer to a push, so that
// one exchange a step suffices, and what the others did in c is what they did one step before. After a step
// that was not finite m begins again at 0.
#ifndef CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_
#define CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_

#include <vector>

#include "proto/job.pb.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

class EnergyMatching final : public GradientTransform {
 public:
  // `optimizer`: the servers', for its schedule.
  EnergyMatching(const v1::EnergyMatching& config, const v1::Optimizer& optimizer, int64_t num_parameters);

  void Start(absl::Span<const float> weights) override;
  void Begin(double progress) override;
  void Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) override;
  void Reset() override;
  void ListState(WorkerState* state) override;

 private:
  const v1::EnergyMatching config_;
  v1::Optimizer course_;  // config_'s learning rate, optimizer's schedule
  float eta_ = 0;         // of the step
  std::vector<float> m_;
  std::vector<float> last_x_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_ENERGY_MATCHING_H_
