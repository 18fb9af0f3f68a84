// Turns a job as the user wrote it into a complete and valid one.
#ifndef CATCHMENT_COMMON_JOB_VALIDATE_H_
#define CATCHMENT_COMMON_JOB_VALIDATE_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// The smallest evaluation.every_epochs.
inline constexpr float kMinEvaluationEpochs = 1e-6f;

// Returns the job with every default filled in, its preset expanded (presets.h) and its layers named. Calling
// it again changes nothing.
// Errors: InvalidArgument with all problems, one on each line:
//   optimizer.momentum: is 1.5; must be in [0, 1)
absl::StatusOr<v1::Job> FillDefaultsAndValidate(v1::Job job);

// Does the same with `job`, and returns the problems: none if it is valid.
Problems FillDefaultsAndCheck(v1::Job* job);

// Returns the first field that depends on the results of an evaluator, and has no effect without one; empty
// if none is set.
std::string FollowsEvaluator(const v1::Evaluation& evaluation);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_VALIDATE_H_
