// What turns a stale gradient into an estimate of what it would be now, value by value, from how far the
// center has gone since: w - w_sent, w_sent being the weights that its worker was sent last.
//
// Threads: without a lock; its owner holds one for each part of the parameters.
#ifndef CATCHMENT_SERVER_COMPENSATION_GRADIENT_COMPENSATION_H_
#define CATCHMENT_SERVER_COMPENSATION_GRADIENT_COMPENSATION_H_

#include <cstdint>
#include <memory>

#include "proto/job.pb.h"

namespace catchment {

class GradientCompensation {
 public:
  // n values of each. Nothing overlaps.
  struct Part {
    int64_t n = 0;
    const float* gradient = nullptr;
    const float* weights = nullptr;
    const float* sent = nullptr;  // weights
    float* state = nullptr;       // where it has one; zero at first
    float* out = nullptr;         // gets the gradient to be applied
  };

  virtual ~GradientCompensation() = default;

  // The name, in checkpoints, of the float vector, as long as the weights, that it keeps; null where it keeps
  // none.
  virtual const char* state_name() const = 0;
  // `steps`: how many steps of the optimizer on this part the state has seen.
  virtual void Compensate(uint64_t steps, const Part& part) const = 0;
  // After the optimizer's step; `momentum`: its buffer.
  virtual void Stepped(int64_t n, const float* momentum, float* state) const {}
};

// Null where the compensation is of another nature. `job` is complete and valid.
std::unique_ptr<GradientCompensation> MakeGradientCompensation(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_COMPENSATION_GRADIENT_COMPENSATION_H_
