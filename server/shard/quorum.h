// The gate of Decoupled DiLoCo: an update does not wait for every worker, but for a quorum and a grace. The
// whole rule, for each block:
//   the update is made
//     when the contributions of all active members are in, or
//     when those of min(minimum, available members) are in, and the deadline has passed:
//       deadline = t_quorum + min(max(grace * (tau * t_step - (t_quorum - t_opened) - t_sync), 0), longest)
// t_opened is when the first contribution arrived, t_quorum when the quorum was in; tau = overlap_steps is
// the number of steps that a worker makes before it needs the answer, t_step the time of a step of the
// fastest member, and t_sync the time from an update until its answers have been sent. So the grace uses only
// time in which even the worker that began the update still computes.
//
// A member is available unless its last contribution to the block was too late for the update before: it may
// now wait for another block, whose update may wait for a member that waits for this one. So somebody can
// always go on: the worker whose push began first waits for a block to which every other member has already
// sent its own, or that was late.
//
// Units: seconds, on any monotonic clock that the caller reads. Threads: const.
// Source: Douillard et al. 2026, arXiv:2604.21428. Departures: t_quorum - t_opened is that of the update
// itself, not an average; t_step is that of the fastest member; there is an upper limit, and it is also the
// grace while t_step is unknown.
#ifndef CATCHMENT_SERVER_SHARD_QUORUM_H_
#define CATCHMENT_SERVER_SHARD_QUORUM_H_

#include <cstdint>
#include <optional>

#include "proto/job.pb.h"

namespace catchment {

// The times that a decision depends on.
struct QuorumTimes {
  double now = 0;
  double step = 0;    // t_step; 0: unknown
  double answer = 0;  // t_sync
};

// The update that a block waits for.
struct QuorumRound {
  std::optional<double> opened_at;
  // Absent until the quorum is in.
  std::optional<double> quorum_at;
  std::optional<double> deadline;
};

class Quorum {
 public:
  // `algorithm` is complete and valid, with consistency.quorum.
  explicit Quorum(const v1::Algorithm& algorithm);

  // Returns the contributions that an update needs while there are so many members.
  uint32_t Needed(uint32_t members) const { return members < minimum_ ? members : minimum_; }

  // Returns the time from the quorum to the deadline. `waited`: t_quorum - t_opened.
  double Grace(double waited, const QuorumTimes& times) const;

  // Follows a round in which contributions have arrived, `in` of them from active members. Returns true if
  // its update is due before all are in. `available`: members.
  bool IsDue(uint32_t in, uint32_t available, const QuorumTimes& times, QuorumRound* round) const;

 private:
  const uint32_t minimum_;
  const double grace_;
  const double longest_;
  const double overlap_steps_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_QUORUM_H_
