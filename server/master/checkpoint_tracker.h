// Tracks which checkpoints are whole (saved by every shard) and recorded (their manifest is written too, so
// that a job can continue from them).
//
// Those that shards list in their first reports are of an earlier life of the job, and are not news.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_
#define CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "proto/wire.pb.h"
#include "server/master/data_ledger.h"

namespace catchment {

class CheckpointTracker {
 public:
  explicit CheckpointTracker(int num_shards) : saved_(num_shards), heard_(num_shards) {}

  struct Whole {
    uint64_t number = 0;
    std::vector<v1::SavedShard> shards;  // by index
  };

  // What became whole with this report, by number; each number once, and none below one that was whole
  // before. The report is of one of the job's shards.
  std::vector<Whole> Observe(const v1::ShardReport& report);

  // By every shard, as their last reports say.
  bool AllSaved(uint64_t number) const;

  // Notes that the manifest of checkpoint `number`, which is whole, is written.
  void SetRecorded(uint64_t number) { recorded_ = std::max(recorded_, number); }
  // The newest that a job can continue from, also of an earlier life; 0: none.
  uint64_t recorded() const { return std::max(old_, recorded_); }
  // The one that the shards began with; 0: none.
  uint64_t earlier() const { return old_; }

 private:
  std::vector<std::map<uint64_t, v1::SavedShard>> saved_;  // by shard and number
  std::vector<bool> heard_;
  uint64_t old_ = 0;   // numbers up to here are of an earlier life
  uint64_t last_ = 0;  // the newest that is whole
  uint64_t recorded_ = 0;
};

// Returns what the shards had when they took the checkpoint.
Cut CutOf(const CheckpointTracker::Whole& whole);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_
