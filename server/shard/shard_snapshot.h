// Copies of a shard at one moment.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_SNAPSHOT_H_
#define CATCHMENT_SERVER_SHARD_SHARD_SNAPSHOT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "server/shard/buffer_pool.h"

namespace catchment {

class Shard;

// A copy of a shard at one moment.
struct ShardSnapshot {
  v1::ShardState state;
  std::vector<float> weights;              // empty: no values are kept
  std::vector<std::vector<float>> states;  // the rule's
  std::vector<std::string> state_names;    // one for each state
};

// A snapshot in progress, made by copy on write: at one moment the shard's state is recorded and all blocks
// are marked; a block's values are copied by Finish, or before that by the first update that reaches the
// block. So a request waits for the copy of one block at most, and the snapshot still has the values of that
// moment.
//
// Threads: one at a time; updates continue in parallel. Destroyed before its shard.
class PendingSnapshot {
 public:
  // Makes a snapshot that is already complete.
  explicit PendingSnapshot(ShardSnapshot complete) : snapshot_(std::move(complete)) {}
  // Cancels the copies that have not been made, and returns the memory to the shard, which must outlive the
  // snapshot, for its next checkpoint.
  ~PendingSnapshot();
  PendingSnapshot(const PendingSnapshot&) = delete;
  PendingSnapshot& operator=(const PendingSnapshot&) = delete;

  // Sets the run of the job to which the snapshot belongs.
  void set_run_id(uint64_t run_id) { snapshot_.state.set_run_id(run_id); }
  // Copies the blocks that no update has copied, each under its lock. Returns the complete snapshot.
  const ShardSnapshot& Finish();

 private:
  friend class Shard;
  PendingSnapshot(const Shard* shard, ShardSnapshot memory) : shard_(shard), snapshot_(std::move(memory)) {}

  const Shard* const shard_ = nullptr;  // null: it is complete
  bool finished_ = false;
  ShardSnapshot snapshot_;  // each block's values are guarded by the block's lock until it is finished
};

// The weights of a shard at one moment, made in the same way, for a reader that takes one block after the
// other: only the blocks that were updated before the reader has come to them have been copied.
//
// Threads: one at a time; updates continue in parallel. Destroyed before its shard.
class PendingWeights {
 public:
  ~PendingWeights();
  PendingWeights(const PendingWeights&) = delete;
  PendingWeights& operator=(const PendingWeights&) = delete;

  // Returns the weights of the next block.
  BufferPtr Next();

 private:
  friend class Shard;
  friend class Block;
  PendingWeights(const Shard* shard, size_t num_blocks) : shard_(shard), copies_(num_blocks) {}

  const Shard* const shard_;
  size_t next_ = 0;
  std::vector<BufferPtr> copies_;  // by block, guarded by its lock; null: not copied
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_SNAPSHOT_H_
