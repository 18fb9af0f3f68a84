// Decides when an update of a block is made, and from which contributions: the first axis of an algorithm. An
// update is made
//   in groups (synchronous: k = 1; grouped: k > 1; worker i in group i mod k)
//     synchronous (k = 1):  from the contributions of all members, when the last of them has arrived;
//     with b backup workers: from the first p - b contributions of the group's p members, at least one;
//     quorum (k = 1):       from all, or from those of a quorum when its grace has passed (quorum.h);
//     hybrid (k > 1):       from each group's contributions separately;
//   in order of arrival (the other kinds)
//     asynchronous:         from every contribution, when it arrives;
//     n-softsync:           from every max(1, floor(p / n)) contributions of any workers, or min(K, p) with a
//                           size K;
//     staleness limit R:    from every contribution that is less than R versions old; others are late;
//     emulated delay D:     from the oldest contribution, when more than D wait;
//     stale synchronous:    from every contribution, when it arrives, but its worker is answered, and
//                           continues, only while clock <= slowest clock + staleness bound.
//
// The master determines the members (proto/wire.proto, Roster). Synchronous updates use the roster of their
// version; a version whose members have all left without a contribution is skipped when a later roster shows
// that training continues. All other updates use one roster of the current members. No update waits for a
// worker that has left or has nothing to do (idle): it uses the contributions that have arrived. In
// groups the owner drops the contributions of a worker that leaves.
//
// A worker's clock is the number of its last push that the block has finished, plus those that the master
// credits it with. It is the same on all blocks and servers as soon as the push has arrived everywhere. So no
// block holds up the slowest worker, and at least one worker can always continue.
//
// Cost: membership and completeness of a group are known in constant time for each contribution, for any
// number of members; a change of the rosters costs one pass over them.
//
// Threads: it has no lock; its owner holds one.
// Source: Chen et al. 2016, arXiv:1604.00981 (synchronous, backup workers); Kurth et al. 2017,
// arXiv:1708.05256 (hybrid); Dean et al. 2012 (asynchronous); Zhang, Gupta et al. 2015, arXiv:1511.05950
// (softsync); Nguyen et al. 2021, arXiv:2106.06639 (its size); Maranjyan et al. 2025, arXiv:2501.16168
// (staleness limit); Ho et al. 2013 (stale synchronous parallel).
#ifndef CATCHMENT_SERVER_SHARD_GATE_H_
#define CATCHMENT_SERVER_SHARD_GATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "server/shard/quorum.h"

namespace catchment {

class Gate {
 public:
  // `algorithm` is complete and valid (common/job/validate.h).
  explicit Gate(const v1::Algorithm& algorithm);

  // Takes the rosters, ascending by from_version, unless newer ones are known. Returns true if it did.
  bool SetRosters(uint64_t generation, const std::vector<v1::Roster>& rosters);
  uint64_t generation() const { return generation_; }

  // Returns true if a roster contains the worker with this incarnation.
  bool IsMember(uint32_t worker, uint64_t incarnation) const;
  // Returns the number of workers that make version `version` and are not idle.
  uint32_t ActiveMembers(uint64_t version) const;

  // ------------------------------------------------------------------------------------------- in groups

  // Returns true for updates in groups, false for updates in order of arrival.
  bool in_groups() const { return groups_ > 0; }
  uint32_t groups() const { return groups_; }
  uint32_t GroupOf(uint32_t worker) const { return worker % groups_; }

  // A worker whose contribution has arrived.
  struct Arrival {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
  };
  enum class Decision {
    kWait,    // for more contributions
    kUpdate,  // from those that have arrived
    kSkip,    // to version SkipTo(version), without an update
  };
  // The number of a group's arrivals that are active members of the roster of the block's version. It is
  // updated with each arrival, and counted again when the roster changes.
  struct Tally {
    uint64_t generation = 0;
    uint64_t from_version = 0;  // of the roster
    uint32_t in = 0;
    // Only with a quorum.
    QuorumRound round;
    std::vector<Arrival> late;  // those whose last contribution was too late for the update before
  };
  // Counts an arrival, which replaces `replaced` if the worker's earlier contribution was there.
  void Count(const Arrival& arrival, const std::optional<Arrival>& replaced, Tally* tally) const;
  // Counts a contribution that is too late. Only with a quorum.
  void CountLate(const Arrival& arrival, Tally* tally) const;
  // Decides about the update of a group. `version` is that of the block; each of `arrived` has been counted.
  Decision Decide(uint64_t version, uint32_t group, absl::Span<const Arrival> arrived,
                  const QuorumTimes& times, Tally* tally) const;
  uint64_t SkipTo(uint64_t version) const;
  // Returns how many contributions make the group's update of this version unless members leave or are late.
  uint32_t Expected(uint64_t version, uint32_t group) const;
  // Returns how many active members of the worker's group that make version `version` have a lower index.
  uint32_t MembersBefore(uint64_t version, uint32_t worker) const;

  // Returns true if an update may be made at a time at which nothing arrives.
  bool has_quorum() const { return quorum_.has_value(); }
  // Returns true if the contributions of all workers that make version `version` and are not idle are in.
  bool AreAllIn(uint64_t version, const Tally& tally) const { return tally.in >= ActiveMembers(version); }
  // Returns true if an update of this version may be made without some of its active members.
  bool IsBelowAll(uint64_t version) const;
  // Calls the function with each worker that makes version `version` and is not idle.
  void ForEachActive(uint64_t version, absl::FunctionRef<void(const Arrival&)> function) const;

  // ------------------------------------------------------------------------------------ in order of arrival

  // Returns true if contributions are answered when they arrive, and not when they are applied.
  bool answers_at_once() const { return buffered_ || delay_ > 0; }

  // Returns true if a contribution with this staleness is to be dropped.
  bool IsTooStale(uint64_t tau) const { return staleness_limit_ > 0 && tau >= staleness_limit_; }

  // Returns how many of the `waiting` contributions, the oldest ones, make an update now. 0: wait for more.
  size_t Due(size_t waiting) const;

  // Returns true if workers may be held up by the clocks of others.
  bool bounded() const { return staleness_bound_.has_value(); }

  // The pushes of a worker that a block has finished.
  struct Finished {
    uint64_t incarnation = 0;
    uint64_t pushes = 0;
  };
  // Returns a worker's clock. `finished` is indexed by worker, and long enough for all members.
  uint64_t ClockOf(uint32_t worker, absl::Span<const Finished> finished) const;
  // Returns the highest clock with which a worker may continue.
  uint64_t HighestClock(absl::Span<const Finished> finished) const;

 private:
  // A roster with an index.
  struct Table {
    explicit Table(const v1::Roster& roster, uint32_t groups);
    const v1::Member* Find(uint32_t worker) const;
    bool IsActive(const Arrival& arrival) const;

    uint64_t from_version = 0;
    std::vector<v1::Member> members;
    std::unordered_map<uint32_t, size_t> places;  // of workers, among the members
    uint32_t active = 0;
    std::vector<uint32_t> active_of_group;
    std::vector<uint32_t> members_before;  // for each member: the active ones of its group with lower indices
  };

  // Returns how many contributions make the group's update, unless a quorum makes it with fewer.
  uint32_t Needed(const Table& roster, uint32_t group) const;
  // Returns true if a quorum makes the update of these contributions before all are in.
  bool IsDue(const Table& roster, absl::Span<const Arrival> arrived, const QuorumTimes& times,
             Tally* tally) const;
  const Table* RosterOf(uint64_t version) const;
  const Table* RosterAfter(uint64_t version) const;

  const v1::Consistency consistency_;
  const bool synchronous_;  // without backup workers
  const uint32_t groups_;
  const uint32_t backup_workers_;
  const std::optional<Quorum> quorum_;
  const bool buffered_;
  const uint32_t delay_;
  const uint32_t staleness_limit_;  // 0: none
  const std::optional<uint32_t> staleness_bound_;
  uint64_t generation_ = 0;
  std::vector<Table> rosters_;  // by from_version
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_GATE_H_
