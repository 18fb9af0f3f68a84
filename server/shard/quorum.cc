#include "server/shard/quorum.h"

#include <algorithm>

namespace catchment {

Quorum::Quorum(const v1::Algorithm& algorithm)
    : minimum_(algorithm.consistency().quorum().minimum()),
      grace_(algorithm.consistency().quorum().grace()),
      longest_(algorithm.consistency().quorum().longest_grace_seconds()),
      overlap_steps_(algorithm.contribution().pseudo_gradient().overlap_steps()) {}

double Quorum::Grace(double waited, const QuorumTimes& times) const {
  if (grace_ <= 0) return 0;
  if (times.step <= 0) return longest_;
  return std::clamp(grace_ * (overlap_steps_ * times.step - waited - times.answer), 0.0, longest_);
}

bool Quorum::IsDue(uint32_t in, uint32_t available, const QuorumTimes& times, QuorumRound* round) const {
  if (!round->opened_at) round->opened_at = times.now;
  if (in < Needed(available)) {
    // A member of the quorum may have left.
    round->quorum_at.reset();
    round->deadline.reset();
    return false;
  }
  if (!round->quorum_at) {
    round->quorum_at = times.now;
    round->deadline = times.now + Grace(times.now - *round->opened_at, times);
  }
  return times.now >= *round->deadline;
}

}  // namespace catchment
