// How far each worker's contributions have come, over all shards: what is trained is counted by it.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_PUSH_MARKS_H_
#define CATCHMENT_SERVER_MASTER_PUSH_MARKS_H_

#include <cstdint>
#include <vector>

#include "proto/wire.pb.h"

namespace catchment {

class PushMarks {
 public:
  explicit PushMarks(int num_shards) : num_shards_(num_shards) {}

  // A worker of which all shards together have settled another number of steps than before.
  struct Change {
    uint64_t incarnation = 0;
    uint64_t settled = 0;
    bool operator==(const Change&) const = default;
  };
  // Takes the marks of a shard that the job has. Returns the workers for which Mark::settled has changed.
  std::vector<Change> Update(const v1::ShardReport& report);
  // Takes back what the shard has reported: another process reports for it.
  void Forget(uint32_t shard);

  // In steps of the worker since its registration (Block.steps in proto/wire.proto).
  struct Mark {
    uint64_t answered = 0;  // by all shards
    uint64_t settled = 0;   // by all shards
    uint64_t begun = 0;     // at one block of one shard, at least
    bool waiting = false;   // some shard has answered contributions that it has not settled
  };
  Mark Of(uint32_t worker, uint64_t incarnation) const;
  // Returns whether the worker waits for others, as all shards say that have answered the fewest of its
  // steps.
  bool WaitsForOthers(uint32_t worker, uint64_t incarnation) const;

 private:
  // A v1::PushMark: there is one for each worker and shard, all of a worker beside each other.
  struct AtShard {
    uint64_t incarnation = 0;
    uint64_t answered = 0;
    uint64_t settled = 0;
    uint64_t begun = 0;
    bool waits = false;
  };
  struct Worker {
    std::vector<AtShard> shards;
    Change last;  // that Update has found
  };

  const size_t num_shards_;
  std::vector<Worker> workers_;  // by index
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PUSH_MARKS_H_
