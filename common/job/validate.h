// From a job as the user wrote it to one that everything else can rely on.
#ifndef CATCHMENT_COMMON_JOB_VALIDATE_H_
#define CATCHMENT_COMMON_JOB_VALIDATE_H_

#include "absl/status/statusor.h"
#include "proto/job.pb.h"

namespace catchment {

// The job with every default filled in (defaults.h), its preset spelled out (presets.h) and its layers named.
// Doing it twice changes nothing.
// Errors: InvalidArgument with all that is wrong, a line each:
//   optimizer.momentum: is 1.5; must be in [0, 1)
absl::StatusOr<v1::Job> FillDefaultsAndValidate(v1::Job job);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_VALIDATE_H_
