// Who waits for whom: the first axis of an algorithm.
//
// An update of version v of a block is made
//   synchronous:   of the contributions of all members of v's roster, when the last of them is in;
//   asynchronous:  of every contribution by itself, as it comes.
// The rosters (proto/wire.proto, Roster) come from the master. A worker that goes leaves them all, and those
// who wait for it are released: v is then made of what is in. A version whose members have all gone without a
// contribution is skipped once a later roster tells that training goes on.
//
// Threads: a policy without a lock; its owner holds one.
// Source: Chen et al. 2016, arXiv:1604.00981 (synchronous); Dean et al. 2012 (asynchronous).
#ifndef CATCHMENT_SERVER_GATE_H_
#define CATCHMENT_SERVER_GATE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

class Gate {
 public:
  // `consistency` is complete and valid (common/job/validate.h).
  explicit Gate(const v1::Consistency& consistency) : synchronous_(consistency.groups() == 1) {}

  bool synchronous() const { return synchronous_; }

  // Takes the rosters, ascending by from_version, unless newer ones are known; returns whether it did.
  bool SetRosters(uint64_t generation, std::vector<v1::Roster> rosters);
  uint64_t generation() const { return generation_; }

  // Whether some roster has the worker with this incarnation.
  bool IsMember(uint32_t worker, uint64_t incarnation) const;

  enum class Decision {
    kWait,    // for more contributions
    kUpdate,  // from those that are in
    kSkip,    // to version SkipTo(version), without an update
  };
  // `arrived`: the workers whose contributions to version `version` are in, ascending.
  Decision Decide(uint64_t version, absl::Span<const uint32_t> arrived) const;
  uint64_t SkipTo(uint64_t version) const;

 private:
  const v1::Roster* RosterOf(uint64_t version) const;
  const v1::Roster* RosterAfter(uint64_t version) const;

  const bool synchronous_;
  uint64_t generation_ = 0;
  std::vector<v1::Roster> rosters_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_GATE_H_
