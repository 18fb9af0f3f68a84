// A job as text, as one number, and next to another.
#ifndef CATCHMENT_COMMON_JOB_JOB_TEXT_H_
#define CATCHMENT_COMMON_JOB_JOB_TEXT_H_

#include <cstdint>
#include <string>

#include "proto/job.pb.h"

namespace catchment {

// In protobuf's text format, as a job file has it; LoadJob gives the same job again.
std::string JobText(const v1::Job& job);

// Whether two daemons were given the same job. `job` is a validated one. Every field counts but
// data.mnist.directory and data.table.directory: machines may keep the files in different places. The same on
// every machine.
uint64_t JobFingerprint(const v1::Job& job);

// Why a job cannot go on from a checkpoint of another: a line for each field that stands in the way, empty
// when none does. Both are validated. The model, the data (but for these directories) and the seed, which
// gives the order of the samples, must be the same; budget, workers, batch size, algorithm and learning rate
// may change.
std::string DescribeResumeConflict(const v1::Job& saved, const v1::Job& now);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_JOB_TEXT_H_
