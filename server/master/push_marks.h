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

  // Takes the marks of a shard that the job has.
  void Update(const v1::ShardReport& report);
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
  const size_t num_shards_;
  std::vector<std::vector<v1::PushMark>> marks_;  // by worker index, then by shard
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PUSH_MARKS_H_
