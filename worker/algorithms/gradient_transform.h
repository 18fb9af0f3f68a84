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

// Clipping by the global norm, as torch.nn.utils.clip_grad_norm_:
//   g *= min(1, max_norm / (|g| + 1e-6))      |g|: the Euclidean norm over the whole vector
// The norm is summed up in double precision. A NaN in g makes all of it NaN, as in PyTorch, so that servers
// refuse all of the contribution and not some blocks of it.
void ClipNorm(float max_norm, absl::Span<float> g);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_
