// Says what staleness-aware momentum has measured and set, and why, whenever it has changed enough to matter.
#ifndef CATCHMENT_SERVER_COMPENSATION_MOMENTUM_LOG_H_
#define CATCHMENT_SERVER_COMPENSATION_MOMENTUM_LOG_H_

#include <optional>
#include <string>

#include "proto/wire.pb.h"

namespace catchment {

// Threads: not safe.
class MomentumLog {
 public:
  // `target`: of the optimizer's momentum and what asynchrony adds, together.
  explicit MomentumLog(float target) : target_(target) {}

  // A line for the log; nothing where momentum is not set by measuring, or hardly differs from the last
  // line's.
  std::optional<std::string> Line(const v1::MomentumState& state);

 private:
  const float target_;
  std::optional<float> told_;  // momentum, in the last line
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_COMPENSATION_MOMENTUM_LOG_H_
