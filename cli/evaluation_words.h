// A job's evaluations in words: when they come, what ends training early, which weights are kept.
#ifndef CATCHMENT_CLI_EVALUATION_WORDS_H_
#define CATCHMENT_CLI_EVALUATION_WORDS_H_

#include <string>

#include "proto/job.pb.h"

namespace catchment {

// A few sentences. The job is complete.
std::string DescribeEvaluation(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_CLI_EVALUATION_WORDS_H_
