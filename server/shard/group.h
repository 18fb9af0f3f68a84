// A group of workers at one block: their contributions to the next update, and how old a contribution to it
// may be. Contributions may be added up while they wait, which frees their values. A contribution cannot be
// removed from a sum: if its worker leaves, the sum is dropped, and the others send theirs again.
//
// Threads: not safe; its owner holds a lock. It keeps its memory from update to update.
#ifndef CATCHMENT_SERVER_SHARD_GROUP_H_
#define CATCHMENT_SERVER_SHARD_GROUP_H_

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "server/rules/rule.h"
#include "server/shard/buffer_pool.h"
#include "server/shard/gate.h"
#include "server/shard/request.h"

namespace catchment {

class Group {
 public:
  // `base` is the block's version.
  explicit Group(uint64_t base) : base_(base) {}

  // Returns the block's version after the group's last update. All members have been sent these weights or
  // later ones: a contribution that was computed with older ones belongs to an update that has been made.
  uint64_t base() const { return base_; }
  void set_base(uint64_t base) { base_ = base; }

  // The group's last update, from which an exchange in it is answered again.
  struct LastUpdate {
    BufferPtr before;  // the block's weights; null: not known
    uint32_t contributions = 0;
  };
  const LastUpdate& last() const { return last_; }
  void set_last(LastUpdate last) { last_ = std::move(last); }

  // Adds a contribution. At most one of each worker waits: another one, sent again over a new connection or
  // by a new incarnation, replaces it. Returns the arrival that is replaced. A contribution of the same
  // incarnation over an older connection is dropped, as if it replaced itself.
  std::optional<Gate::Arrival> Add(WaitingContribution waiting);

  // Returns the workers whose contributions wait, by index.
  const std::vector<Gate::Arrival>& arrived() const { return arrived_; }

  // Returns their tally, for the gate.
  Gate::Tally& tally() { return tally_; }
  // Drops the contributions for which the condition is true; the tally is counted again.
  void EraseIf(absl::FunctionRef<bool(const WaitingContribution&)> condition);

  // The sum of those of the waiting contributions that have been added up. Its values are those of the first
  // one.
  struct Sum : Rule::Sum {
    BufferPtr buffer;
  };
  Sum& sum() { return sum_; }
  // Returns true if the sum has a contribution for which the condition is true.
  bool HasAdded(absl::FunctionRef<bool(const Envelope&)> condition) const;

  // Returns the contributions by worker. After they have been moved away, Clear must be called.
  std::vector<WaitingContribution>& waiting() { return waiting_; }
  void Clear();

 private:
  uint64_t base_;
  LastUpdate last_;
  std::vector<WaitingContribution> waiting_;
  std::vector<Gate::Arrival> arrived_;
  Gate::Tally tally_;
  Sum sum_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_GROUP_H_
