// DANA-Slim (Hakimi, Barkai, Gabel, Schuster 2019, "Taming momentum in a distributed asynchronous
// environment", arXiv:1907.11612). The whole algorithm:
//   WORKER, every step: v = mu * v + g ; push mu * v + g ; x = pull()
//   server:             w -= eta * the push
// The momentum buffer is on the worker whose gradients it averages, and needs no memory on the servers. The
// push looks ahead along the momentum, so the worker computes its next gradient near the center's future
// weights.
//
// A single worker is SGD with Nesterov momentum in PyTorch's form, bit for bit. Since everything is linear in
// g, synchronous workers are equal to it with the batch of all of them, except for rounding.
//
// Departures: after a step that was not finite v restarts at 0; weight decay is applied by the servers, and
// so not included in v.
#ifndef CATCHMENT_WORKER_ALGORITHMS_LOOK_AHEAD_MOMENTUM_H_
#define CATCHMENT_WORKER_ALGORITHMS_LOOK_AHEAD_MOMENTUM_H_

#include <vector>

#include "proto/job.pb.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

class LookAheadMomentum final : public GradientTransform {
 public:
  LookAheadMomentum(const v1::LookAheadMomentum& config, int64_t num_parameters)
      : mu_(config.momentum()), v_(num_parameters) {}

  void Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) override;
  void Reset() override;
  void ListState(WorkerState* state) override;

 private:
  const float mu_;
  std::vector<float> v_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_LOOK_AHEAD_MOMENTUM_H_
