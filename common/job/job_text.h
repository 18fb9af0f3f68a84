// A job as text, its comparison with other jobs, and the check that a build knows its fields.
#ifndef CATCHMENT_COMMON_JOB_JOB_TEXT_H_
#define CATCHMENT_COMMON_JOB_JOB_TEXT_H_

#include <google/protobuf/message.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/base/file_access.h"
#include "proto/job.pb.h"

namespace catchment {

// Reads a job file and applies overrides to it (text_format.h). Errors name file, line, column and field, or
// the override and its field.
absl::StatusOr<v1::Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides = {},
                                FileNamedBy named_by = FileNamedBy::kUser);

// Returns the job in protobuf's text format, as in a job file; LoadJob reads the same job from it.
std::string JobText(const v1::Job& job);

// Returns a fingerprint by which two daemons check that they have the same job, equal on every machine. `job`
// is valid. All fields count except data.loader_threads and data.mnist.directory, data.table.directory and
// data.image_folder.directory, since machines may keep the files in different directories.
uint64_t JobFingerprint(const v1::Job& job);

// Returns why a job cannot continue from a checkpoint of another job, with a line for each field that
// prevents it; empty if it can. Both are valid. The model, the data (except for these fields) and the seed,
// which determines the order of the samples, must be the same; budget, workers, batch size, algorithm and
// learning rate may change.
std::string DescribeResumeConflict(const v1::Job& saved, const v1::Job& now);

// Returns FailedPrecondition, naming message and field, for the first field, or value of an enumeration, in
// `message` and all messages in it that this build does not know.
absl::Status CheckFieldsKnown(const google::protobuf::Message& message);

// Returns the path of the job's field that a flag of this name would set, "optimizer.learning_rate" of "lr"
// or "learning_rate"; several with " or " between them; empty if there is none.
std::string FieldOfFlag(const std::string& flag);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_JOB_TEXT_H_
