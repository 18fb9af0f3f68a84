// What became of pushes, how stale they were and how far the center had gone meanwhile, by worker and by
// shard, as JSON: what metrics.jsonl and summary.json tell of asynchrony. docs/operating.md explains each
// key.
#ifndef CATCHMENT_SERVER_PUSH_REPORT_H_
#define CATCHMENT_SERVER_PUSH_REPORT_H_

#include <nlohmann/json.hpp>

#include "proto/master.pb.h"

namespace catchment {

// One object for each worker that there was, ascending; its distributions are over all shards, or, with
// `shards`, over each by itself, too, under that key.
nlohmann::ordered_json PushesPerWorker(const v1::JobStatus& status, bool shards);

// One object for each shard, over all workers, with the momentum that the shard has measured and set.
nlohmann::ordered_json PushesPerShard(const v1::JobStatus& status);

// Adds to `object` what is of the whole job: pushes_waiting, staleness in seconds and the gap over all
// shards, the momentum of shard 0.
void AddAsynchrony(const v1::JobStatus& status, nlohmann::ordered_json* object);

// Of all pushes that have one: how many, and the sum over them.
struct GapTotal {
  uint64_t count = 0;
  double sum = 0;
};
GapTotal TotalGap(const v1::JobStatus& status);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PUSH_REPORT_H_
