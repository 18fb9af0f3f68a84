// Whether training can end, and the best weights be kept, by what the job's evaluations say.
#ifndef CATCHMENT_COMMON_JOB_CHECK_EVALUATION_H_
#define CATCHMENT_COMMON_JOB_CHECK_EVALUATION_H_

#include <string>

#include "common/job/problems.h"
#include "proto/job.pb.h"

namespace catchment {

// Ranges; that there are test samples, with classes where accuracy is asked for; and that the job does not
// ask for the same bits on every run.
void CheckEvaluation(const v1::Job& job, Problems* problems);

// The first field that follows what an evaluator says, and means nothing without one. Empty: none.
std::string FollowsEvaluator(const v1::Evaluation& evaluation);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_CHECK_EVALUATION_H_
