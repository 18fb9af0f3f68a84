// A worker's interface to the center, with which algorithms push and pull, independent of its place.
//
// There is one operation at a time for each fragment (ParameterLayout::fragment), in four steps, so that it
// overlaps with a pass over the model, or with several:
//   Start    begins an operation on given memory
//   Ready    announces that a part of the input is final and may be sent
//   Await    waits until a part of the output is complete
//   Finish   waits until the operation is complete, and returns its outcome
//
// Shapes: every span is the whole flat vector of parameters (common/job/parameter_layout.h), of which only
// the fragment's part is read or written; ranges are parts of it. Memory: the input must not change from
// Ready to Finish. The output's part of a range may be written as soon as the range is Ready (in a pull:
// after Start), while other ranges are not Ready. Threads: one caller at a time. Errors: an error of Await or
// Finish ends the operation; nothing uses its memory afterwards.
#ifndef CATCHMENT_WORKER_PARAMETERS_H_
#define CATCHMENT_WORKER_PARAMETERS_H_

#include <cstdint>
#include <memory_resource>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "common/base/status_macros.h"
#include "common/job/parameter_layout.h"

namespace catchment {

class Parameters {
 public:
  struct Operation {
    enum Kind {
      // Fetches the weights at version `min_version` or later.
      kPull,
      // Sends a gradient, the mean over `samples` samples.
      kPush,
      // A push, followed by the weights after the update that contains the gradient.
      kPushPull,
      // Sends x, and fetches difference = moving_rate * (x - center), by which the center has moved. If the
      // outcome is non_finite, the difference is unchanged.
      kExchange,
    };
    Kind kind = kPull;
    uint64_t min_version = 0;
    uint32_t samples = 0;
    absl::Span<const float> input;  // gradient, or x; empty in a pull
    absl::Span<float> output;       // weights, or difference; empty in a push
    uint64_t steps = 0;             // in this input and all earlier ones (Block.steps in proto/wire.proto)
    int fragment = 0;
  };
  // The outcome of a contribution.
  struct Outcome {
    uint64_t staleness = 0;   // the largest over all blocks
    bool late = false;        // the update of at least one block was made without it
    bool non_finite = false;  // at least one block had a NaN or an infinity, and was dropped
  };

  virtual ~Parameters() = default;

  // The operation of the fragment must be finished.
  virtual void Start(const Operation& operation) = 0;
  // Announces that a range of the input is final. Each value is announced once.
  virtual void Ready(Range range) = 0;
  // Waits until the output of the range is complete. Returns immediately if the operation has no output. With
  // one fragment only.
  virtual absl::Status Await(Range range) = 0;
  // Waits until the fragment's operation is complete. All of its input must be Ready.
  virtual absl::StatusOr<Outcome> Finish(int fragment) = 0;
  absl::StatusOr<Outcome> Finish() { return Finish(0); }
  // Returns true if Finish would return at once.
  virtual bool IsDone(int fragment) const = 0;

  // Returns true if a server has called for a contribution that is computed with the fragment's weights that
  // were fetched last (Block.CALL in proto/wire.proto). Not to be called during the fragment's operation.
  virtual bool Called(int /*fragment*/) { return false; }

  // Returns the allocator for vectors that are inputs: with its memory, a server on this machine reads them
  // where they are. It lives as long as the object.
  virtual std::pmr::memory_resource* memory() { return std::pmr::get_default_resource(); }

  virtual int num_fragments() const { return 1; }
  // Returns the fragment's ranges of the flat vector, ascending. With several fragments only.
  virtual std::vector<Range> fragment(int /*fragment*/) const { return {}; }

  // Each makes a whole operation, without overlap; all but Pull with one fragment only.
  absl::Status Pull(uint64_t min_version, absl::Span<float> weights) {
    for (int f = 0; f < num_fragments(); ++f)
      Start({.kind = Operation::kPull, .min_version = min_version, .output = weights, .fragment = f});
    for (int f = 0; f < num_fragments(); ++f) {
      RETURN_IF_ERROR(Finish(f).status());
    }
    return absl::OkStatus();
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
