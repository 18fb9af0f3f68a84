// Transforms a worker's gradient before it is sent, elementwise, so that it can be applied to one layer at a
// time within the backward pass (accrued_gradient.h).
//
// Shapes: vectors are the whole flat vector of parameters, layers parts of it. Threads: one.
#ifndef CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_
#define CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_

#include "absl/types/span.h"
#include "common/job/parameter_layout.h"
#include "worker/worker_state.h"

namespace catchment {

class GradientTransform {
 public:
  virtual ~GradientTransform() = default;

  // Receives the initial weights.
  virtual void Start(absl::Span<const float> weights) {}
  // Begins a step with a gradient; `progress` is that of Algorithm::Step.
  virtual void Begin(double progress) {}
  // Replaces a layer's part of `gradient`, computed at `weights`, by the values to send. Called once for
  // every layer in each step.
  virtual void Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) = 0;
  // Resets the state that depends on gradients: the last one was not finite.
  virtual void Reset() = 0;
  // Adds the vectors that are kept between steps.
  virtual void ListState(WorkerState* state) = 0;
};

// Clips the gradient to a global norm, as torch.nn.utils.clip_grad_norm_:
//   g *= min(1, max_norm / (|g| + 1e-6))      |g|: the Euclidean norm over the whole vector
// The norm is summed in double precision. A NaN in g makes all values NaN, as in PyTorch, so that servers
// refuse the whole contribution and not only some of its blocks.
void ClipNorm(float max_norm, absl::Span<float> g);
// Does the same for the values of some ranges of g.
void ClipNorm(float max_norm, absl::Span<const Range> ranges, absl::Span<float> g);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_ALGORITHMS_GRADIENT_TRANSFORM_H_
