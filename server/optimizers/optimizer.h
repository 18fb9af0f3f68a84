// How gradients move the center: the fourth axis of an algorithm.
//
// Each optimizer is one pass over memory: it reads weights, state and gradient once, writes weights and state
// once, and writes a copy of the fresh weights on the way when one is asked for. It works on any part of the
// parameters; all here are elementwise, so the result does not depend on how parameters are split.
#ifndef CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_
#define CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_

#include <cstdint>
#include <memory>

#include "proto/job.pb.h"

namespace catchment {

class Optimizer {
 public:
  // One part of the parameters: n values each. Nothing overlaps.
  struct Part {
    int64_t n = 0;
    const float* gradient = nullptr;
    float* weights = nullptr;
    float* states[2] = {nullptr, nullptr};  // as many as num_states(); zero before the first step
    float* copy = nullptr;                  // gets the new weights; may be null
  };
  struct Step {
    float learning_rate = 0;
    uint64_t number = 1;  // of updates of this part, this one included
  };

  virtual ~Optimizer() = default;

  // Float vectors, as long as the weights, that it keeps from step to step.
  virtual int num_states() const = 0;
  // Thread-safe for distinct parts.
  virtual void Apply(const Step& step, const Part& part) const = 0;
};

// `config` is complete and valid (common/job/validate.h).
std::unique_ptr<Optimizer> MakeOptimizer(const v1::Optimizer& config);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OPTIMIZERS_OPTIMIZER_H_
