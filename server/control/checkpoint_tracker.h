// Tracks which checkpoints have been saved by every shard, and which are also recorded: their manifest has
// been written, so that a job can be resumed from them.
//
// Checkpoints that shards list in their first reports are from an earlier run of the job and are not returned
// as new.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_CHECKPOINT_TRACKER_H_
#define CATCHMENT_SERVER_CONTROL_CHECKPOINT_TRACKER_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <vector>

#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/data_ledger.h"

namespace catchment {

class CheckpointTracker {
 public:
  explicit CheckpointTracker(int num_shards) : saved_(num_shards), heard_(num_shards) {}

  struct Saved {
    uint64_t number = 0;
    std::vector<v1::SavedShard> shards;  // by index
  };

  // Returns the checkpoints that, with this report, all shards have saved, by number. Each number is returned
  // once, and none below one that was returned before. The report must come from one of the job's shards.
  std::vector<Saved> Observe(const v1::ShardReport& report);

  // Returns true if every shard has saved checkpoint `number`, according to its last report.
  bool AllSaved(uint64_t number) const;

  // Notes that the manifest of checkpoint `number`, which all shards have saved, has been written.
  void SetRecorded(uint64_t number) { recorded_ = std::max(recorded_, number); }
  // Returns the newest checkpoint that a job can be resumed from, including those of earlier runs; 0: none.
  uint64_t recorded() const { return std::max(old_, recorded_); }
  v1::CheckpointTrackerImage Save() const;
  // Takes what is in no report of a shard.
  void Restore(const v1::CheckpointTrackerImage& image);
  // Returns the checkpoint that the shards started from; 0: none.
  uint64_t earlier() const { return old_; }

 private:
  std::vector<std::map<uint64_t, v1::SavedShard>> saved_;  // by shard and number
  std::vector<bool> heard_;
  uint64_t old_ = 0;   // the highest number of an earlier run
  uint64_t last_ = 0;  // the newest that all shards have saved
  uint64_t recorded_ = 0;
};

// Returns the state of the shards when they took the checkpoint.
Cut CutOf(const CheckpointTracker::Saved& saved);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_CHECKPOINT_TRACKER_H_
