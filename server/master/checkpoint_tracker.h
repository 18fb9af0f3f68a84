// Which checkpoints are whole: saved by every shard.
//
// Those that shards list in their first reports are of an earlier life of the job, and are not news.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_
#define CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_

#include <cstdint>
#include <map>
#include <vector>

#include "proto/wire.pb.h"

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

  // The newest that is whole, also of an earlier life; 0: none.
  uint64_t last() const { return last_; }

 private:
  std::vector<std::map<uint64_t, v1::SavedShard>> saved_;  // by shard and number
  std::vector<bool> heard_;
  uint64_t old_ = 0;  // numbers up to here are of an earlier life
  uint64_t last_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_CHECKPOINT_TRACKER_H_
