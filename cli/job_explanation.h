// All that `catchment validate` says about a valid job.
#ifndef CATCHMENT_CLI_JOB_EXPLANATION_H_
#define CATCHMENT_CLI_JOB_EXPLANATION_H_

#include <string>

#include "cli/job_facts.h"

namespace catchment {

// The whole text: algorithm, model, servers, worker, wire.
std::string ExplainJob(const JobFacts& facts);

// Its parts.
std::string ExplainAlgorithm(const JobFacts& facts);
std::string ExplainModel(const JobFacts& facts);
std::string ExplainServers(const JobFacts& facts);
std::string ExplainWorker(const JobFacts& facts);
std::string ExplainComputation(const JobFacts& facts);
std::string ExplainWire(const JobFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_EXPLANATION_H_
