// How gradients move weights: on the servers the center, the fourth axis of an algorithm; and on a worker
// that sends pseudo-gradients (worker/algorithms/pseudo_gradient.h) its own weights, between two exchanges
// with the center. They are the same classes, so that an optimizer does the same wherever it runs. A worker
// sees nothing else of server/.
//
// Each optimizer is one pass over memory: it reads weights, state and gradient once, writes weights and state
// once, and writes a copy of the fresh weights on the way when one is asked for. Most are elementwise: they
// work on any part of the parameters, and the result does not depend on how parameters are split. LARS and
// LAMB take norms over whole tensors, which is one pass more, and their parts are whole tensors.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_
#define CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "proto/job.pb.h"

namespace catchment {

class Optimizer {
 public:
  // One part of the parameters: n values each. Nothing overlaps.
  struct Part {
    int64_t n = 0;
    const float* gradient = nullptr;
    float* weights = nullptr;
    float* states[3] = {};  // as many as num_states(); zero before the first step
    float* copy = nullptr;  // gets the new weights; may be null
    // Where each tensor ends, ascending, the last one at n. For LARS and LAMB; others do not look.
    absl::Span<const int64_t> tensor_ends;

    // Values begin .. begin+size-1 of it; tensor_ends stays behind.
    Part Slice(int64_t begin, int64_t size) const;
  };
  struct Step {
    float learning_rate = 0;
    uint64_t number = 1;  // of updates of this part, this one included
    // In place of SGD's own, where staleness sets it (server/compensation/momentum_control.h).
    std::optional<float> momentum = std::nullopt;
  };

  virtual ~Optimizer() = default;

  // The names of the float vectors, as long as the weights, that it keeps from step to step, in the order of
  // Part::states. They are PyTorch's, and checkpoints have them: a name never changes its meaning.
  virtual std::vector<std::string> state_names() const = 0;
  int num_states() const { return static_cast<int>(state_names().size()); }
  // Thread-safe for distinct parts.
  virtual void Apply(const Step& step, const Part& part) const = 0;
};

inline Optimizer::Part Optimizer::Part::Slice(int64_t begin, int64_t size) const {
  const auto from = [begin](auto* values) { return values == nullptr ? nullptr : values + begin; };
  return {
      size, from(gradient), from(weights), {from(states[0]), from(states[1]), from(states[2])}, from(copy)};
}

// `config` is complete and valid (common/job/validate.h).
std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_
