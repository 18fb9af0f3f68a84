// The outcomes of pushes, their staleness and their gap, by worker and by shard, as JSON for metrics.jsonl
// and summary.json. docs/outputs.md explains each key.
#ifndef CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_
#define CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_

#include <nlohmann/json.hpp>

#include "proto/master.pb.h"

namespace catchment {

// Returns one object for each present and former worker of the job, in ascending order. Its distributions are
// over all shards; with `shards`, there is also one for each shard under that key.
nlohmann::ordered_json PushesPerWorker(const v1::JobStatus& status, bool shards);

// Returns one object for each shard, over all workers, with the momentum that the shard measured and set.
nlohmann::ordered_json PushesPerShard(const v1::JobStatus& status);

// Adds the values of the whole job to `object`: pushes_waiting, staleness in seconds and the gap over all
// shards, and the momentum of shard 0.
void AddAsynchrony(const v1::JobStatus& status, nlohmann::ordered_json* object);

// Adds the updates of blocks that quorums have made, over all shards.
void AddQuorum(const v1::JobStatus& status, nlohmann::ordered_json* object);

// The number of pushes that have a gap, and the sum of the gaps.
struct GapTotal {
  uint64_t count = 0;
  double sum = 0;
};
GapTotal TotalGap(const v1::JobStatus& status);

// Computes the rate of each worker, and how its training thread has spent its time, since the previous call.
//
// Progress is reported at irregular times, so rates are based on the time of the training thread, which is
// the sum of the parts in Progress (proto/master.proto). Threads: not thread-safe.
class WorkerRates {
 public:
  // Returns an object for each worker with worker, samples_per_second, compute_share, push_share, pull_share
  // and data_share since the previous call, or its registration; null if it reported no progress since.
  nlohmann::ordered_json Update(const v1::JobStatus& status);

 private:
  v1::JobStatus last_;  // contains only workers
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_
