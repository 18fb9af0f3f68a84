// Records the pushes of one worker that a shard has handled, so that each block of each push counts exactly
// once.
//
// A push is identified by worker index, incarnation, fragment (PseudoGradient.fragments in proto/job.proto)
// and sequence number. A worker begins push s + 1 of a fragment only when all blocks of push s are answered,
// so for each fragment a lane with one watermark (all pushes up to it are done) and one bitmap (the blocks of
// the next push that are done) are sufficient, and memory does not grow.
//
// The fate of a block may be known only after it was answered (consistency.n_softsync, emulated_delay): a
// push is counted when the fates of all its blocks are known.
//
// Threads: not safe; its owner holds a lock.
#ifndef CATCHMENT_SERVER_SHARD_PUSH_LEDGER_H_
#define CATCHMENT_SERVER_SHARD_PUSH_LEDGER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/latency_histogram.h"
#include "proto/checkpoint.pb.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

// The change of a block between sending it and applying a contribution that was computed with it.
struct Lag {
  double seconds = 0;
  double squared_gap = 0;  // sum (w_now - w_sent)^2 over gap_values values
  int64_t gap_values = 0;  // server/shard/gap_sample.h
};

class PushLedger {
 public:
  // `fragments`: of each block of the shard (ParameterLayout::FragmentsOfBlocks).
  explicit PushLedger(std::vector<uint32_t> fragments);
  // All blocks belong to one fragment.
  explicit PushLedger(int num_blocks) : PushLedger(std::vector<uint32_t>(num_blocks, 0)) {}

  uint64_t incarnation() const { return incarnation_; }
  // Begins another incarnation of the worker: its sequence numbers begin again. Statistics continue.
  void Begin(uint64_t incarnation);

  enum class Seen { kNew, kDone };
  // Returns whether the block of push `sequence` was handled before. InvalidArgument if a sequence number is
  // skipped, or 0.
  absl::StatusOr<Seen> Lookup(uint64_t sequence, uint32_t block) const;

  // Returns how many steps of the worker are in a push of the block's fragment that states `steps`, and in no
  // earlier one; nothing for the first push of an incarnation, which may hold steps of an earlier one.
  std::optional<uint64_t> StepsIn(uint32_t block, uint64_t steps) const;
  // Records the arrival of a new block of push `sequence`. `steps`: Block.steps (proto/wire.proto). Returns
  // InvalidArgument, and records nothing, if `steps` is lower than in the fragment's last push, or differs
  // among the blocks of a push.
  absl::Status Arrived(uint64_t sequence, uint32_t block, uint64_t steps);
  // Takes back that a block of a push that is not done has arrived: it will be sent again.
  void Withdraw(uint64_t sequence, uint32_t block);
  // Returns a number of the push of which some, but not all, blocks have arrived, different for each push; 0:
  // there is none.
  uint64_t under_way() const;

  // Returns true if some blocks that have arrived are not in an update yet, and all blocks of their pushes
  // have arrived.
  bool all_arrived() const;

  // Records that the block of push `sequence` is answered, or about to be. Has no effect if it was recorded
  // before.
  void Accept(uint64_t sequence, uint32_t block);
  // Records the fate of an accepted block of push `sequence` of this or a former incarnation. With the last
  // block the push is counted: its staleness is the largest of its blocks, in versions and in seconds. `lag`
  // is given if the block was applied and the shard has sent the weights that it was computed with.
  void Settle(uint64_t incarnation, uint64_t sequence, uint32_t block, v1::Block::Fate fate,
              uint64_t staleness, const std::optional<Lag>& lag = std::nullopt);
  // Calls Accept and Settle.
  void Done(uint64_t sequence, uint32_t block, v1::Block::Fate fate, uint64_t staleness);
  void CountDuplicate() { ++duplicates_; }

  v1::WorkerStatistics Statistics(uint32_t worker) const;
  v1::PushMark Mark(uint32_t worker) const;
  v1::Watermark Watermark(uint32_t worker) const;

  // Returns everything except the arrivals of blocks that are not answered: they are sent again.
  v1::WorkerLedger Save(uint32_t worker) const;
  // Sets what Save has returned. InvalidArgument if it is of another number of blocks.
  absl::Status Restore(const v1::WorkerLedger& saved);

 private:
  // The pushes of one fragment.
  struct Lane {
    size_t num_blocks = 0;    // in the shard
    uint64_t watermark = 0;   // all blocks of pushes up to this one are done
    uint64_t steps = 0;       // in pushes up to the watermark
    uint64_t next_steps = 0;  // in these and the next one; `steps` while none of its blocks has arrived
    // Blocks of push watermark + 1. In a synchronous group those that have arrived wait for others before
    // they are done.
    size_t num_arrived = 0;
    size_t num_done = 0;
  };
  // A push that is not counted yet.
  struct Push {
    uint64_t incarnation = 0;
    uint32_t fragment = 0;
    uint64_t sequence = 0;
    uint64_t steps_before = 0;  // in earlier pushes
    uint64_t steps = 0;         // in this push and earlier ones
    size_t settled = 0;         // blocks
    uint64_t max_staleness = 0;
    std::optional<Lag> lag;  // over all of its blocks
    bool any_applied = false;
    bool any_late = false;
    bool any_non_finite = false;
  };

  Lane& LaneOf(uint32_t block) { return lanes_[fragments_[block]]; }
  const Lane& LaneOf(uint32_t block) const { return lanes_[fragments_[block]]; }
  void BeginPush(uint32_t fragment);
  void RestoreStatistics(const v1::WorkerStatistics& statistics);
  void Count(const Push& push);
  void CountLag(const Lag& lag);
  // Returns the number of pushes that are answered and not counted.
  uint64_t Waiting() const;

  std::vector<uint32_t> fragments_;  // by block
  uint64_t incarnation_ = 0;
  std::vector<Lane> lanes_;    // by fragment
  std::vector<bool> arrived_;  // by block: of the next push of its lane
  std::vector<bool> done_;
  std::vector<Push> pushes_;  // by age

  uint64_t applied_ = 0;
  uint64_t duplicates_ = 0;  // blocks
  uint64_t late_ = 0;
  uint64_t split_ = 0;
  uint64_t non_finite_ = 0;
  uint64_t non_finite_in_a_row_ = 0;
  // Incarnation and number of the last push that was not finite: older ones may be counted after it.
  std::pair<uint64_t, uint64_t> last_non_finite_ = {0, 0};
  std::map<uint64_t, uint64_t> staleness_;  // of applied pushes: value -> count
  LatencyHistogram lags_;
  double max_seconds_ = 0;
  uint64_t gaps_ = 0;
  double gap_sum_ = 0;
  double max_gap_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_PUSH_LEDGER_H_
