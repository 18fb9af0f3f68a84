// What sets the optimizer's momentum so that it and the momentum that asynchrony adds (Mitliagkas et al.
// 2016, arXiv:1605.09774: 1 - 1/g with g workers and exponential service times) make the job's together.
//
// One for each block. Threads: without a lock; the block's owner holds one.
#ifndef CATCHMENT_SERVER_COMPENSATION_MOMENTUM_CONTROL_H_
#define CATCHMENT_SERVER_COMPENSATION_MOMENTUM_CONTROL_H_

#include <cstdint>
#include <memory>

#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class MomentumControl {
 public:
  // A contribution that is about to be applied.
  struct Stale {
    uint64_t version = 0;  // that it was computed at
    uint64_t tau = 0;
    const float* gradient = nullptr;
    float learning_rate = 0;  // before any factor
  };
  struct Setting {
    float momentum = 0;
    float rate_factor = 1;  // of the learning rate
  };

  virtual ~MomentumControl() = default;

  // For the step that is made of this.
  virtual Setting Set(const Stale& stale) = 0;
  // The weights after the step, and their version.
  virtual void Stepped(uint64_t version, const float* weights) {}

  // What it has measured and set, and all that it needs to go on after a restart.
  virtual v1::MomentumState state() const = 0;
  virtual void Restore(const v1::MomentumState& state) = 0;
};

// Null where the compensation is of another nature. `size`: of the block. `job` is complete and valid.
std::unique_ptr<MomentumControl> MakeMomentumControl(const v1::Job& job, int64_t size);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_COMPENSATION_MOMENTUM_CONTROL_H_
