// A worker's view of the center: what algorithms push to and pull from, wherever it is.
//
// One operation at a time, in four steps, so that it can go on under a pass over the model:
//   Start    what is to be done, with which memory
//   Ready    a part of the input is final, and may leave
//   Await    a part of the output is needed now
//   Finish   all of it has been done; what became of it
//
// Shapes: every span is the whole flat vector of parameters (common/parameter_layout.h), ranges are parts of
// it. Memory: the input stays as it is from Ready to Finish. The output's part of a range may be written from
// the moment when the range is Ready (of a pull: from Start), whatever else is still to come. Threads: one
// caller at a time. Errors: an error of Await or Finish ends the operation; nothing uses its memory any more.
#ifndef CATCHMENT_WORKER_PARAMETERS_H_
#define CATCHMENT_WORKER_PARAMETERS_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/parameter_layout.h"

namespace catchment {

class Parameters {
 public:
  struct Operation {
    enum Kind {
      // Weights at version `min_version` or later.
      kPull,
      // A gradient, the mean over `samples` samples.
      kPush,
      // A push, and the weights right after the update that the gradient is part of.
      kPushPull,
      // x, and difference = moving_rate * (x - center), by which the center has moved. Where the outcome is
      // non_finite the difference is left as it was.
      kExchange,
    };
    Kind kind = kPull;
    uint64_t min_version = 0;
    uint32_t samples = 0;
    absl::Span<const float> input;  // gradient, or x; of a pull none
    absl::Span<float> output;       // weights, or difference; of a push none
    uint64_t steps = 0;  // that the input and those before it hold (Block.steps in proto/wire.proto)
  };
  // What became of a contribution.
  struct Outcome {
    uint64_t staleness = 0;   // the largest over all blocks
    bool late = false;        // some block's update was made without it
    bool non_finite = false;  // some block held a NaN or an infinity, and was dropped
  };

  virtual ~Parameters() = default;

  virtual void Start(const Operation& operation) = 0;
  // Each value of the input once.
  virtual void Ready(Range range) = 0;
  // Waits until the output of the range is complete. Returns at once if the operation has no output.
  virtual absl::Status Await(Range range) = 0;
  // All of the input is Ready.
  virtual absl::StatusOr<Outcome> Finish() = 0;

  // The four steps in one, for who has nothing to do meanwhile.
  absl::Status Pull(uint64_t min_version, absl::Span<float> weights) {
    return Run({Operation::kPull, min_version, 0, {}, weights}).status();
  }
  absl::StatusOr<Outcome> Push(absl::Span<const float> gradient, uint32_t samples, uint64_t steps) {
    return Run({Operation::kPush, 0, samples, gradient, {}, steps});
  }
  absl::StatusOr<Outcome> PushPull(absl::Span<const float> gradient, uint32_t samples,
                                   absl::Span<float> weights, uint64_t steps) {
    return Run({Operation::kPushPull, 0, samples, gradient, weights, steps});
  }
  absl::StatusOr<Outcome> Exchange(absl::Span<const float> x, uint32_t samples, absl::Span<float> difference,
                                   uint64_t steps) {
    return Run({Operation::kExchange, 0, samples, x, difference, steps});
  }

 private:
  absl::StatusOr<Outcome> Run(const Operation& operation) {
    Start(operation);
    if (!operation.input.empty()) Ready({0, static_cast<int64_t>(operation.input.size())});
    return Finish();
  }
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_PARAMETERS_H_
