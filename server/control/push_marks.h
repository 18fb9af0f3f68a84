// Tracks which steps of each worker all shards have answered and settled; trained samples are counted by it.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_PUSH_MARKS_H_
#define CATCHMENT_SERVER_CONTROL_PUSH_MARKS_H_

#include <cstdint>
#include <vector>

#include "proto/wire.pb.h"

namespace catchment {

class PushMarks {
 public:
  explicit PushMarks(int num_shards) : num_shards_(num_shards) {}

  // A worker for which the number of steps settled by all shards has changed.
  struct Change {
    uint64_t incarnation = 0;
    uint64_t settled = 0;
    bool operator==(const Change&) const = default;
  };
  // Records the marks in a report of one of the job's shards. Returns the workers whose Mark::settled has
  // changed.
  std::vector<Change> Update(const v1::ShardReport& report);
  // Forgets the shard's reports, because another process has replaced it.
  void Forget(uint32_t shard);

  // Counts steps of the worker since its registration (Block.steps in proto/wire.proto).
  struct Mark {
    uint64_t answered = 0;  // by all shards
    uint64_t settled = 0;   // by all shards
    uint64_t begun = 0;     // by at least one block of one shard
    bool waiting = false;   // a shard has answered contributions that it has not settled
  };
  Mark Of(uint32_t worker, uint64_t incarnation) const;
  // Returns true if the worker waits for others according to all shards that have answered the fewest of its
  // steps.
  bool WaitsForOthers(uint32_t worker, uint64_t incarnation) const;

 private:
  // The last v1::PushMark of a worker from a shard. Those of one worker are stored together.
  struct AtShard {
    uint64_t incarnation = 0;
    uint64_t answered = 0;
    uint64_t settled = 0;
    uint64_t begun = 0;
    bool waits = false;
  };
  struct Worker {
    std::vector<AtShard> shards;
    Change last;  // the last change that Update returned
  };

  const size_t num_shards_;
  std::vector<Worker> workers_;  // by index
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_PUSH_MARKS_H_
