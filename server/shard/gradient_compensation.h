// Corrects a stale gradient to an estimate of the current one, value by value, from the move of the center
// since then: w - w_sent, where w_sent are the weights that its worker was sent last.
//
// Threads: it has no lock; its owner holds one for each part of the parameters.
#ifndef CATCHMENT_SERVER_SHARD_GRADIENT_COMPENSATION_H_
#define CATCHMENT_SERVER_SHARD_GRADIENT_COMPENSATION_H_

#include <cstdint>
#include <memory>

#include "proto/job.pb.h"

namespace catchment {

class GradientCompensation {
 public:
  // n values each. Nothing overlaps.
  struct Part {
    int64_t n = 0;
    const float* gradient = nullptr;
    const float* weights = nullptr;
    const float* sent = nullptr;  // weights
    float* state = nullptr;       // if it has one; zero at first
    float* out = nullptr;         // receives the gradient to apply
  };

  virtual ~GradientCompensation() = default;

  // Returns the name, in checkpoints, of the float vector, as long as the weights, that it keeps; null if it
  // keeps none.
  virtual const char* state_name() const = 0;
  // Writes the corrected gradient. `steps`: the optimizer's steps on this part since the state began.
  virtual void Compensate(uint64_t steps, const Part& part) const = 0;
  // Updates the state after the optimizer's step; `momentum` is its buffer.
  virtual void Stepped(int64_t n, const float* momentum, float* state) const {}
};

// Returns null if the job's compensation is of another kind. `job` is complete and valid.
std::unique_ptr<GradientCompensation> MakeGradientCompensation(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_GRADIENT_COMPENSATION_H_
