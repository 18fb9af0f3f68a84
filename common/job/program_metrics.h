// Adds up the metrics of attached programs, from a worker's steps to the job's totals.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_JOB_PROGRAM_METRICS_H_
#define CATCHMENT_COMMON_JOB_PROGRAM_METRICS_H_

#include <cstddef>
#include <cstdint>
#include <string>

#include "google/protobuf/repeated_field.h"
#include "proto/master.pb.h"

namespace catchment {

using ProgramMetrics = google::protobuf::RepeatedPtrField<v1::ProgramMetric>;

constexpr int kMaxProgramMetrics = 64;  // of a worker, and of a job
constexpr size_t kMaxMetricNameBytes = 100;

// Adds values to the metric of this name. New names are left out once there are kMaxProgramMetrics.
void AddProgramMetric(const std::string& name, double sum, uint64_t count, ProgramMetrics* totals);

// Returns the values added since `before`: the metrics of `after` with more values, in its order.
ProgramMetrics ProgramMetricsSince(const ProgramMetrics& before, const ProgramMetrics& after);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PROGRAM_METRICS_H_
