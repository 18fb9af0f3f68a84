// The job file as it stands: read, overridden, not yet filled in or checked (see validate.h).
#ifndef CATCHMENT_COMMON_JOB_JOB_FILE_H_
#define CATCHMENT_COMMON_JOB_JOB_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace catchment {

// Errors name file, line, column and field (see text_format.h), or the override and its field (see
// overrides.h).
absl::StatusOr<v1::Job> LoadJob(const std::string& path, const std::vector<std::string>& overrides = {});

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_JOB_FILE_H_
