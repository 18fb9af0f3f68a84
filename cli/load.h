// A job file and the command line's changes to it, made into a complete and valid job.
#ifndef CATCHMENT_CLI_LOAD_H_
#define CATCHMENT_CLI_LOAD_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace catchment {

// `set` are overrides, "path=value" (common/job/text_format.h). `workers`, if not 0, is the job's number of
// workers, unless an override sets that. Errors: of the file, of the overrides, and of the job, all at once
// and a line each.
absl::StatusOr<v1::Job> LoadCompleteJob(const std::string& path, std::vector<std::string> set, int workers);

// The same of a job that is read already.
absl::StatusOr<v1::Job> CompleteJob(v1::Job job, std::vector<std::string> set, int workers);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOAD_H_
