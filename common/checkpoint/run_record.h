// The record of a job in its directory for checkpoints (RunRecord in proto/checkpoint.proto):
// DIR/run.textproto.
#ifndef CATCHMENT_COMMON_CHECKPOINT_RUN_RECORD_H_
#define CATCHMENT_COMMON_CHECKPOINT_RUN_RECORD_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/checkpoint.pb.h"

namespace catchment {

// Replaces the record; creates `dir` if necessary.
absl::Status WriteRunRecord(const std::string& dir, const v1::RunRecord& record);

// Deletes the record, which must exist.
absl::Status DeleteRunRecord(const std::string& dir);

// Reads the record. NotFound if there is none; InvalidArgument if the file is not a record.
absl::StatusOr<v1::RunRecord> ReadRunRecord(const std::string& dir);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_CHECKPOINT_RUN_RECORD_H_
