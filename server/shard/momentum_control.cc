#include "server/shard/momentum_control.h"

#include "server/shard/closed_loop_momentum.h"
#include "server/shard/open_loop_momentum.h"

namespace catchment {

std::unique_ptr<MomentumControl> MakeMomentumControl(const v1::Job& job, int64_t size) {
  const v1::Compensation& compensation = job.algorithm().compensation();
  const float target = job.optimizer().momentum();
  if (compensation.has_open_loop_momentum()) {
    return std::make_unique<OpenLoopMomentum>(target, compensation.open_loop_momentum());
  }
  if (compensation.has_closed_loop_momentum()) {
    return std::make_unique<ClosedLoopMomentum>(target, compensation.closed_loop_momentum(), size);
  }
  return nullptr;
}

}  // namespace catchment
