// A group of workers at one block: what they have contributed to their next update, and how old a
// contribution to it may be.
//
// Threads: not safe; its owner holds a lock. What it keeps it keeps from update to update, its memory too.
#ifndef CATCHMENT_SERVER_GROUP_H_
#define CATCHMENT_SERVER_GROUP_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/gate.h"
#include "server/request.h"

namespace catchment {

class Group {
 public:
  // `base`: the block's version.
  explicit Group(uint64_t base) : base_(base) {}

  // The block's version after the group's last update. All members have been sent these weights or later
  // ones: what was computed at older ones was meant for an update that is made.
  uint64_t base() const { return base_; }
  void set_base(uint64_t base) { base_ = base; }

  // Of one worker at most one contribution waits; another takes its place: it was sent a second time over a
  // new connection, or by a new incarnation. Returns whose place it takes. One of the same incarnation over an older
  // connection is dropped, as if it took its own place.
  std::optional<Gate::Arrival> Add(Request contribution);

  // Whose contributions wait, by worker.
  const std::vector<Gate::Arrival>& arrived() const { return arrived_; }

  // Of those, for the gate.
  Gate::Tally& tally() { return tally_; }
  // Drops the contributions that meet the condition; the tally is counted anew with the rosters that follow.
  void EraseIf(absl::FunctionRef<bool(const Request&)> condition);

  // The contributions, by worker. None wait any more once they are moved away and Clear is called.
  std::vector<Request>& waiting() { return waiting_; }
  void Clear();

 private:
  uint64_t base_;
  std::vector<Request> waiting_;
  std::vector<Gate::Arrival> arrived_;
  Gate::Tally tally_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_GROUP_H_
