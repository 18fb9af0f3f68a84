// A worker's view of the center: what algorithms push to and pull from, wherever it is.
//
// Shapes: every span is the whole flat vector of parameters (common/parameter_layout.h).
// Threads: one caller at a time.
#ifndef CATCHMENT_WORKER_PARAMETERS_H_
#define CATCHMENT_WORKER_PARAMETERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace catchment {

class Parameters {
 public:
  // What became of a contribution.
  struct Outcome {
    uint64_t staleness = 0;   // the largest over all blocks
    bool late = false;        // some block's update was made without it
    bool non_finite = false;  // some block held a NaN or an infinity, and was dropped
  };

  virtual ~Parameters() = default;

  // Weights at version `min_version` or later; waits for them.
  virtual absl::Status Pull(uint64_t min_version, absl::Span<float> weights) = 0;
  // `samples`: that the gradient is the mean of.
  virtual absl::StatusOr<Outcome> Push(absl::Span<const float> gradient, uint32_t samples) = 0;
  // Push, and the weights right after the update that the gradient is part of.
  virtual absl::StatusOr<Outcome> PushPull(absl::Span<const float> gradient, uint32_t samples,
                                           absl::Span<float> weights) = 0;
  // difference = moving_rate * (x - center), by which the center has moved. Where the outcome is non_finite the
  // difference is left as it was.
  virtual absl::StatusOr<Outcome> Exchange(absl::Span<const float> x, uint32_t samples,
                                           absl::Span<float> difference) = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_PARAMETERS_H_
