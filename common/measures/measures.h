// All facts of a run, each declared once. From these tables come metrics.jsonl, summary.json, the status as
// JSON and as text, Prometheus' metrics, TensorBoard's scalars, and the tables of docs/outputs.md.
//
// Threads: pure functions; the tables are constant.
#ifndef CATCHMENT_COMMON_MEASURES_MEASURES_H_
#define CATCHMENT_COMMON_MEASURES_MEASURES_H_

#include <cmath>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"
#include "common/measures/push_totals.h"
#include "common/measures/quorum_total.h"
#include "common/measures/work_rates.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

// The JSON objects in which a measure is, as bits.
enum MeasuredIn : unsigned {
  kInLines = 1,    // the lines of metrics.jsonl
  kInSummary = 2,  // summary.json
  kInStatus = 4,   // catchment status --json
  kInAll = 7,
  kOfWorkersOnly = 8,  // of PushMeasures: only where a worker's pushes are added up over all shards
};

template <typename Reading>
struct Measure {
  const char* key;  // several measures of a key are in different objects
  unsigned in;      // MeasuredIn
  const char* unit;
  const char* help;                                         // for docs/outputs.md and Prometheus
  nlohmann::ordered_json (*value)(const Reading& reading);  // null: unknown
  // "NAME" or "NAME{LABEL=VALUE}"; "": none. NAME_total is a counter, in seconds if the unit is "us". A list
  // of [value, count] is a histogram.
  const char* prometheus = "";
  // TensorBoard's tag; "": none. Values of "test/" are those at `tested_at_samples`.
  const char* tag = "";

  // Returns the value; null if it is unknown or not finite.
  nlohmann::ordered_json Read(const Reading& reading) const {
    nlohmann::ordered_json read = value(reading);
    return read.is_number_float() && !std::isfinite(read.get<double>()) ? nullptr : read;
  }
};

// Facts that a summary has besides the status.
struct RunFacts {
  std::vector<std::string> devices;  // of workers, without duplicates
  uint64_t best_weights = 0;         // the evaluation of model-best.safetensors; 0: none
  uint64_t computed_samples = 0;     // since the master's start, as the status's seconds
  // A simulation measures these (simulation/goodput.h); absent: not measured.
  std::optional<double> goodput = std::nullopt;
  std::optional<double> uptime = std::nullopt;
  std::optional<uint64_t> busiest_second_bytes = std::nullopt;
};

// Readings refer to the messages that they are made of.
struct JobReading {
  // `before`: an earlier status of the job, since which rates are measured; null: see work_rates.h.
  explicit JobReading(const v1::JobStatus& status, const v1::JobStatus* before = nullptr,
                      const RunFacts& facts = {});

  const v1::JobStatus& status;
  const v1::JobStatus* before;
  RunFacts facts;
  PushTotals pushes;
  std::optional<QuorumTotal> quorum;
  std::optional<v1::GradientNoise> noise;
  Work work;
};
struct WorkerReading {
  WorkerReading(const v1::WorkerStatus& worker, const v1::JobStatus* before)
      : worker(worker), work(WorkOf(worker, before)) {}

  const v1::WorkerStatus& worker;
  Work work;
};
struct ShardReading {
  uint32_t shard;
  const v1::ShardReport* report;   // null: there is none yet
  const v1::ServerStatus* server;  // null: its members are unknown
};
struct PushReading {
  PushTotals pushes;
  uint64_t quorum_updates = 0;  // of all shards
};

absl::Span<const Measure<JobReading>> JobMeasures();
absl::Span<const Measure<WorkerReading>> WorkerMeasures();
absl::Span<const Measure<ShardReading>> ShardMeasures();
// The pushes of a worker, of a shard, or of a worker to a shard.
absl::Span<const Measure<PushReading>> PushMeasures();

// Adds the measures that are in one of the objects `in`.
template <typename Reading>
void AddMeasures(absl::Span<const Measure<Reading>> measures, unsigned in, const Reading& reading,
                 nlohmann::ordered_json* object) {
  for (const Measure<Reading>& measure : measures) {
    if ((measure.in & in) != 0) (*object)[measure.key] = measure.Read(reading);
  }
}

// Returns the unit of a key of JobMeasures; "" if there is no such key.
std::string UnitOf(const std::string& key);

// Returns one object for each present and former worker, in ascending order, over all shards. With `shards`,
// there is also one for each shard under that key.
nlohmann::ordered_json PushesPerWorker(const v1::JobStatus& status, bool shards);
// Returns one object for each shard, over all workers.
nlohmann::ordered_json PushesPerShard(const v1::JobStatus& status);

// Returns one object for each member, with its rates since `before`, or its registration. Null if it has
// reported no progress since.
nlohmann::ordered_json RatesPerWorker(const v1::JobStatus& status, const v1::JobStatus& before);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_MEASURES_H_
