// A rule updates the center by contributions: the server's half of the second axis of an algorithm. The
// worker's half has the same file name in worker/algorithms.
//
// A rule only computes. When it is called, the gate has decided which contributions make the update, and the
// shard holds the block's lock.
#ifndef CATCHMENT_SERVER_RULES_RULE_H_
#define CATCHMENT_SERVER_RULES_RULE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"
#include "server/rules/gradient_noise.h"
#include "server/rules/momentum_control.h"

namespace catchment {

class Rule {
 public:
  static constexpr int kMaxStates = 4;

  // A contribution. All vectors are as long as the block.
  struct Input {
    // A gradient, or a worker's weights; null: it is in Center.sum.
    const float* values = nullptr;
    uint32_t samples = 0;             // that the gradient is the mean of; 0: not part of the average
    float* answer = nullptr;          // receives the elastic difference, if has_answers()
    uint64_t version = 0;             // that it was computed at
    uint64_t staleness = 0;           // in versions
    uint64_t measured_staleness = 0;  // at most that since the server has sent the worker its weights
    const float* sent = nullptr;      // weights that it was computed with, if needs_sent_weights()
  };
  // A sum of contributions: sum_i b_i / samples * a_i, with b_i samples in contribution a_i. It is their part
  // of the average if all contributions to the update have `samples` samples together.
  struct Sum {
    float* values = nullptr;
    double samples = 0;  // that are expected in the update
    // sum_i b_i ||a_i||^2, if the spread is measured.
    double squares = 0;
  };
  struct Center {
    int64_t size = 0;
    int64_t position = 0;  // of the block in the flat vector of parameters
    float* weights = nullptr;
    float* states[kMaxStates] = {};  // num_states() of them
    uint64_t steps = 0;              // of the optimizer, before this update
    float learning_rate = 0;
    uint64_t version = 0;                  // after this update
    std::optional<float> cycled_momentum;  // by the schedule; nothing: the optimizer's own
    MomentumControl* momentum = nullptr;   // null if the job has none
    // Only for optimizers that need whole tensors: the ends of the block's tensors, the last one at size,
    // and memory for an average of contributions, as long as the block.
    absl::Span<const int64_t> tensor_ends;
    float* average = nullptr;
    uint64_t compensation_begin = 0;  // steps made before the compensation's vector began
    // Number of contributions in the update; 0 means the number passed to Apply. It is larger when an answer
    // is recomputed for a duplicate.
    uint64_t contributions = 0;
    // Receives the spread of the contributions, if they are averaged as they are; null: it is not measured.
    ContributionSpread* spread = nullptr;
    // Contributions that are added up already; null: none. Only if AddsUpContributions of the job.
    const Sum* sum = nullptr;
  };

  virtual ~Rule() = default;

  // Returns the names, in checkpoints, of the float vectors, as long as the weights, that the rule keeps:
  // those of the optimizer, then that of the compensation.
  virtual std::vector<std::string> state_names() const = 0;
  int num_states() const { return static_cast<int>(state_names().size()); }
  // Returns true if each contribution is answered with a separate vector; otherwise the answer is the
  // weights.
  virtual bool has_answers() const = 0;
  virtual bool needs_sent_weights() const { return false; }
  // Returns true if even a contribution that makes an update alone may be changed before the optimizer
  // applies it.
  virtual bool changes_single() const { return false; }

  // Makes one update of one block from one or more contributions, in worker order. `weights_copy`, if not
  // null, receives the new weights. Returns true if the optimizer made a step. Thread-safe for distinct
  // blocks.
  virtual bool Apply(absl::Span<const Input> contributions, const Center& center,
                     float* weights_copy) const = 0;
};

// Adds `share` times the values to those of the sum, or makes them the first ones.
void AddUp(float share, const float* values, int64_t n, float* sum);
void BeginSum(float share, int64_t n, float* sum);

// Creates the rule of `job`, which is complete and valid (common/job/validate.h). Without a layout the rule
// ignores groups of parameters.
std::unique_ptr<Rule> MakeRule(const v1::Job& job, const ParameterLayout* layout = nullptr);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_RULE_H_
