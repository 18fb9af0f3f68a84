// Metric families for Prometheus, built at each scrape from what a daemon reports anyway. Names and units
// follow https://prometheus.io/docs/practices/naming: seconds, bytes, ratios from 0 to 1, and _total for
// counters.
//
// A counter falls when a job goes back to a checkpoint, which Prometheus treats as the restart of a process.
//
// Threads: none; functions fill the vector that the caller owns.
#ifndef CATCHMENT_COMMON_METRICS_FAMILIES_H_
#define CATCHMENT_COMMON_METRICS_FAMILIES_H_

#include <prometheus/metric_family.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "proto/master.pb.h"
#include "proto/wire.pb.h"

namespace catchment {

using MetricFamilies = std::vector<prometheus::MetricFamily>;
using MetricLabels = std::vector<prometheus::ClientMetric::Label>;

// Appends a value to its family, which these add if it is not there.
void AddCounter(const std::string& name, const std::string& help, double value, MetricFamilies* families,
                const MetricLabels& labels = {});
void AddGauge(const std::string& name, const std::string& help, double value, MetricFamilies* families,
              const MetricLabels& labels = {});
// Appends a histogram. `counts`: how often each value was seen. Buckets end at 0, 1, 2, 4, ... up to 1024.
void AddHistogram(const std::string& name, const std::string& help,
                  const std::map<uint64_t, uint64_t>& counts, MetricFamilies* families);

// Adds the whole job, as the master knows it: catchment_samples_total, catchment_test_accuracy_ratio, ...
void AddJob(const v1::JobStatus& status, MetricFamilies* families);
// Adds one shard, at the server that holds it: catchment_shard_version, ...
void AddShard(const v1::ShardReport& report, MetricFamilies* families);
// Adds one worker, since it registered: catchment_worker_samples_total, ...
void AddWorker(const v1::Progress& progress, MetricFamilies* families);
// Adds the process: process_resident_memory_bytes, ..., with the names that Prometheus' client libraries use.
void AddProcess(MetricFamilies* families);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_METRICS_FAMILIES_H_
