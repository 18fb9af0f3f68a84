// An optimizer moves weights by gradients. On the servers it moves the center, which is the fourth axis of an
// algorithm; on a worker that sends pseudo-gradients (worker/algorithms/pseudo_gradient.h) it moves the
// worker's own weights between two exchanges with the center. Both use the same classes, so an optimizer
// computes the same wherever it runs.
//
// Each optimizer passes over memory once: it reads weights, states and gradient, writes weights and states,
// and also writes a copy of the new weights if requested. Most optimizers are elementwise:
// they work on any part of the parameters, and the result does not depend on how the parameters are split.
// Optimizers with OptimizerKind::whole_tensors take norms over whole tensors, which is a second pass, and
// their parts are whole tensors.
//
// To add an optimizer: a value of v1::Optimizer::Kind with its formula (proto/job.proto), a source file here
// that defines its OptimizerKind, its name in implementation.h and in BUILD, and a check in
// common/job/check_optimizer.cc if it has a field that no other one has.
#ifndef CATCHMENT_OPTIM_OPTIMIZER_H_
#define CATCHMENT_OPTIM_OPTIMIZER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
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
    float* states[3] = {};  // num_states() of them; zero before the first step
    float* copy = nullptr;  // receives the new weights; may be null
    // The end of each tensor, ascending, the last one at n. Only read with whole_tensors.
    absl::Span<const int64_t> tensor_ends;
    int64_t position = 0;  // of the first value in the flat vector of parameters. Only read with groups

    // Returns the values begin .. begin+size-1, without tensor_ends.
    Part Slice(int64_t begin, int64_t size) const;
  };
  struct Step {
    float learning_rate = 0;
    uint64_t number = 1;  // updates of this part, this one included
    // Replaces the momentum, or ADAM's, ADAMW's and LAMB's beta1, if the schedule cycles it
    // (common/job/learning_rate.h) or, for SGD, the measured staleness sets it
    // (server/rules/momentum_control.h).
    std::optional<float> momentum = std::nullopt;
  };

  virtual ~Optimizer() = default;

  // Returns the names of the float vectors, as long as the weights, that the optimizer keeps from step to
  // step, in the order of Part::states. They are PyTorch's names, and checkpoints contain them: a name never
  // changes its meaning.
  virtual std::vector<std::string> state_names() const = 0;
  int num_states() const { return static_cast<int>(state_names().size()); }
  // Updates the part. Thread-safe for distinct parts.
  virtual void Apply(const Step& step, const Part& part) const = 0;
};

inline Optimizer::Part Optimizer::Part::Slice(int64_t begin, int64_t size) const {
  const auto from = [begin](auto* values) { return values == nullptr ? nullptr : values + begin; };
  return {.n = size,
          .gradient = from(gradient),
          .weights = from(weights),
          .states = {from(states[0]), from(states[1]), from(states[2])},
          .copy = from(copy),
          .position = position + begin};
}

// A tensor and its group.
struct GroupedTensor {
  int64_t end = 0;  // in the flat vector of parameters; the tensor begins at the end of the one before
  int group = -1;   // index in v1::Optimizer.groups; -1: the tensor is in none
};

// Returns the optimizer that `config` describes, which is complete and valid (common/job/validate.h). With
// `nesterov_every` above 1, `config` is SGD with Nesterov momentum, which is delayed (delayed_nesterov.h).
// `tensors`: those of the flat vector, in order; if it is empty, all have the optimizer's own settings.
std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config, uint32_t nesterov_every = 1,
                                         std::vector<GroupedTensor> tensors = {});

// A field of v1::Optimizer that is a number or a truth value.
struct OptimizerField {
  const char* name;
  // Absent: it has none, or it depends on the preset.
  std::optional<float> default_value = std::nullopt;
};

// The facts about one value of v1::Optimizer::Kind.
struct OptimizerKind {
  v1::Optimizer::Kind kind;
  // Takes norms over whole tensors, so that no tensor may be split between servers or blocks. It clips
  // gradients and applies weight decay itself; for all others MakeOptimizer clips before the optimizer's own
  // formula.
  bool whole_tensors = false;
  // Applies weight decay in its own formula; for all others MakeOptimizer adds it to the gradient.
  bool decays_weights = false;
  // The fields that it reads, and its own defaults for fields that every kind reads.
  absl::Span<const OptimizerField> fields;
  std::unique_ptr<Optimizer> (*make)(const v1::Optimizer& config);
  // Returns the formula, or the name and the hyperparameters, as text.
  std::string (*describe)(const v1::Optimizer& config);

  bool HasField(absl::string_view name) const;
};

// Returns every kind but UNSET, in the order of their numbers.
absl::Span<const OptimizerKind* const> OptimizerKinds();

// Returns null for UNSET and unknown values.
const OptimizerKind* FindOptimizerKind(v1::Optimizer::Kind kind);

// Returns sentences about the changes to the gradient before the optimizer's formula, each preceded by a
// space; empty if there are none.
std::string DescribePreparation(const v1::Optimizer& config);

// Returns true if tensors must not be split.
bool NeedsWholeTensors(const v1::Optimizer& config);

}  // namespace catchment

#endif  // CATCHMENT_OPTIM_OPTIMIZER_H_
