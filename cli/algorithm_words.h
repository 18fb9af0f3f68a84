// Describes a job's algorithm in words: what happens, in which order, and which workers wait.
#ifndef CATCHMENT_CLI_ALGORITHM_WORDS_H_
#define CATCHMENT_CLI_ALGORITHM_WORDS_H_

#include <string>

#include "cli/job_facts.h"

namespace catchment {

// One or two sentences each.
std::string DescribeConsistency(const JobFacts& facts);
std::string DescribeContribution(const JobFacts& facts);
std::string DescribeCompensation(const JobFacts& facts);
std::string DescribeOptimizer(const JobFacts& facts);
std::string DescribeSchedule(const JobFacts& facts);
// To go on with after the schedule; empty where there is none.
std::string DescribeWorkerScaling(const JobFacts& facts);
std::string DescribeBudget(const JobFacts& facts);

// "every step", "every 4 steps".
std::string EverySteps(int64_t steps);

}  // namespace catchment

#endif  // CATCHMENT_CLI_ALGORITHM_WORDS_H_
