// What a worker makes of its gradient before it sends it, elementwise, and so a layer at a time, within the
// backward pass (accrued_gradient.h).
//
// Shapes: vectors are the whole flat vector of parameters, layers parts of it. Threads: one.
#ifndef CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_
#define CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_

#include "absl/types/span.h"
#include "common/parameter_layout.h"
#include "worker/worker_state.h"

namespace catchment {

class GradientTransform {
 public:
  virtual ~GradientTransform() = default;

  // The weights that training begins with.
  virtual void Start(absl::Span<const float> weights) {}
  // A step that takes a gradient is next; `progress` is Algorithm::Step's.
  virtual void Begin(double progress) {}
  // The layer's part of `gradient`, taken at `weights`, becomes what is sent. Once a step for every layer.
  virtual void Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) = 0;
  // What was sent was not finite: forgets what gradients have left behind.
  virtual void Reset() = 0;
  // Adds the vectors that it keeps from step to step.
  virtual void ListState(WorkerState* state) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_
