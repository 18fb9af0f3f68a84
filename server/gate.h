// Who waits for whom: the first axis of an algorithm. An update of a block is made
//   in groups (groups k > 0, worker i in group i mod k)
//     synchronous (k = 1):  of the contributions of all members, when the last of them is in;
//     with spare workers s: of the first p - s of the group's p members, at least of one;
//     hybrid (k > 1):       of each group's by itself;
//   in order of arrival (groups 0)
//     asynchronous:         of every contribution, as it comes;
//     n-softsync:           of every max(1, floor(p / n)) contributions, whoever sent them;
//     emulated delay D:     of the oldest contribution, once more than D wait;
//     stale synchronous:    as it comes, but its worker is answered, and so goes on, only while
//                             clock <= slowest clock + staleness bound.
//
// The members (proto/wire.proto, Roster) come from the master. Synchronous updates are made by the roster of
// their version, and a version whose members have all gone without a contribution is skipped once a later
// roster tells that training goes on. All else goes by one roster of who is a member now. A worker that goes,
// or has nothing to do (idle), is waited for by nobody, and those who waited for it are released: the update
// is then made of what is in. In groups the owner drops what a worker that goes has sent for the update.
//
// A worker's clock is the number of its last push that the block has finished, after those that the master
// credits it with: the same on all blocks and servers as soon as the push has come everywhere, whenever they
// heard of the worker. So the slowest worker of all is held up by no block, and somebody can always go on.
//
// Cost: who is a member, and whether a group is complete, is known in constant time for each contribution,
// however many members there are; a change of the rosters costs one pass over them.
//
// Threads: a policy without a lock; its owner holds one.
// Source: Chen et al. 2016, arXiv:1604.00981 (synchronous, spare workers); Kurth et al. 2017,
// arXiv:1708.05256 (hybrid); Dean et al. 2012 (asynchronous); Zhang, Gupta et al. 2015, arXiv:1511.05950
// (softsync); Ho et al. 2013 (stale synchronous parallel).
#ifndef CATCHMENT_SERVER_GATE_H_
#define CATCHMENT_SERVER_GATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <unordered_map>
#include <vector>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class Gate {
 public:
  // `algorithm` is complete and valid (common/job/validate.h).
  explicit Gate(const v1::Algorithm& algorithm);

  // Takes the rosters, ascending by from_version, unless newer ones are known; returns whether it did.
  bool SetRosters(uint64_t generation, const std::vector<v1::Roster>& rosters);
  uint64_t generation() const { return generation_; }

  // Whether some roster has the worker with this incarnation.
  bool IsMember(uint32_t worker, uint64_t incarnation) const;
  // Those who make version `version`, and are not idle.
  uint32_t ActiveMembers(uint64_t version) const;

  // ------------------------------------------------------------------------------------------- in groups

  // Otherwise in order of arrival.
  bool in_groups() const { return groups_ > 0; }
  uint32_t groups() const { return groups_; }
  uint32_t GroupOf(uint32_t worker) const { return worker % groups_; }

  // A worker whose contribution is in.
  struct Arrival {
    uint32_t worker = 0;
    uint64_t incarnation = 0;
  };
  enum class Decision {
    kWait,    // for more contributions
    kUpdate,  // from those that are in
    kSkip,    // to version SkipTo(version), without an update
  };
  // How many of a group's arrivals are active members of the roster that makes the block's version: counted
  // as they come, and counted anew when that roster is another.
  struct Tally {
    uint64_t generation = 0;
    uint64_t from_version = 0;  // of the roster
    uint32_t in = 0;
  };
  // One has come, in the place of `replaced` where the same worker had one in already.
  void Count(const Arrival& arrival, const std::optional<Arrival>& replaced, Tally* tally) const;
  // `version`: of the block. `arrived`: of the group, each of which was counted.
  Decision Decide(uint64_t version, uint32_t group, absl::Span<const Arrival> arrived, Tally* tally) const;
  uint64_t SkipTo(uint64_t version) const;

  // ------------------------------------------------------------------------------------ in order of arrival

  // A contribution is answered when it comes, not when it is applied.
  bool answers_at_once() const { return softsync_ > 0 || delay_ > 0; }

  // Of so many contributions that wait: how many, the oldest, make an update now. 0: wait for more.
  size_t Due(size_t waiting) const;

  // Whether workers are held up by others' clocks.
  bool bounded() const { return bounded_; }

  // A worker's pushes that a block has finished.
  struct Finished {
    uint64_t incarnation = 0;
    uint64_t pushes = 0;
  };
  // `finished`: by worker index, long enough for all members.
  uint64_t ClockOf(uint32_t worker, absl::Span<const Finished> finished) const;
  // The highest clock with which a worker may go on.
  uint64_t HighestClock(absl::Span<const Finished> finished) const;

 private:
  // A roster, to be looked up in.
  struct Table {
    explicit Table(const v1::Roster& roster, uint32_t groups);
    const v1::Member* Find(uint32_t worker) const;
    bool IsActive(const Arrival& arrival) const;

    uint64_t from_version = 0;
    std::vector<v1::Member> members;
    std::unordered_map<uint32_t, size_t> places;  // of workers, among the members
    uint32_t active = 0;
    std::vector<uint32_t> active_of_group;
  };

  const Table* RosterOf(uint64_t version) const;
  const Table* RosterAfter(uint64_t version) const;

  const bool synchronous_;  // without spare workers
  const uint32_t groups_;
  const uint32_t spare_workers_;
  const uint32_t softsync_;  // 0: off
  const uint32_t delay_;
  const bool bounded_;
  const uint32_t staleness_bound_;
  uint64_t generation_ = 0;
  std::vector<Table> rosters_;  // by from_version
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_GATE_H_
