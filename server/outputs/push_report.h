// The outcomes of pushes, their staleness, and the move of the center in the meantime, by worker and by
// shard, as JSON for metrics.jsonl and summary.json. docs/operating.md explains each key.
#ifndef CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_
#define CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_

#include <nlohmann/json.hpp>

#include "proto/master.pb.h"

namespace catchment {

// Returns one object for each worker of the job, also former ones, ascending; its distributions are over all
// shards, and with `shards` also over each shard, under that key.
nlohmann::ordered_json PushesPerWorker(const v1::JobStatus& status, bool shards);

// Returns one object for each shard, over all workers, with the momentum that the shard has measured and set.
nlohmann::ordered_json PushesPerShard(const v1::JobStatus& status);

// Adds the values of the whole job to `object`: pushes_waiting, staleness in seconds and the gap over all
// shards, and the momentum of shard 0.
void AddAsynchrony(const v1::JobStatus& status, nlohmann::ordered_json* object);

// The number of pushes that have a gap, and the sum of the gaps.
struct GapTotal {
  uint64_t count = 0;
  double sum = 0;
};
GapTotal TotalGap(const v1::JobStatus& status);

// How fast each worker goes, and what its training thread spends its time on, from one look to the next.
//
// Progress comes with heartbeats and leases, not by the clock: the time is the training thread's own, which
// is all in the parts that Progress has (proto/master.proto). Threads: one.
class WorkerRates {
 public:
  // An object for each member: worker, samples_per_second, compute_share, push_share, pull_share, data_share,
  // since the look before, or its registration; null where nothing was heard of it meanwhile.
  nlohmann::ordered_json Look(const v1::JobStatus& status);

 private:
  v1::JobStatus last_;  // its workers alone
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_OUTPUTS_PUSH_REPORT_H_
