// Describes for the log what staleness-aware momentum, or the bound of the learning rate, has measured and
// set, whenever it has changed enough to matter.
#ifndef CATCHMENT_SERVER_SHARD_MOMENTUM_LOG_H_
#define CATCHMENT_SERVER_SHARD_MOMENTUM_LOG_H_

#include <optional>
#include <string>

#include "proto/wire.pb.h"

namespace catchment {

// Threads: not safe.
class MomentumLog {
 public:
  // `target`: the sum of the optimizer's momentum and what asynchrony adds.
  explicit MomentumLog(float target) : target_(target) {}

  // Returns a line for the log; nothing if no setting is measured, or the settings hardly differ from those
  // of the last line.
  std::optional<std::string> Line(const v1::MomentumState& state);

 private:
  // Returns the line of a bound on the learning rate alone.
  std::optional<std::string> BoundLine(const v1::MomentumState& state);

  const float target_;
  std::optional<float> last_logged_momentum_;
  double last_logged_factor_ = 1;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_MOMENTUM_LOG_H_
