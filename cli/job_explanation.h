// A valid job, explained in words and as JSON.
#ifndef CATCHMENT_CLI_JOB_EXPLANATION_H_
#define CATCHMENT_CLI_JOB_EXPLANATION_H_

#include <string>

#include "cli/job_facts.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// Returns the whole text: algorithm, model, servers, worker, wire.
std::string ExplainJob(const JobFacts& facts);

// Each returns a part of it.
std::string ExplainAlgorithm(const JobFacts& facts);
std::string ExplainModel(const JobFacts& facts);
std::string ExplainServers(const JobFacts& facts);
std::string ExplainWorker(const JobFacts& facts);
std::string ExplainComputation(const JobFacts& facts);
std::string ExplainWire(const JobFacts& facts);

// Each returns one or two sentences about a part of the algorithm.
std::string DescribeConsistency(const JobFacts& facts);
std::string DescribeContribution(const JobFacts& facts);
std::string DescribeCompensation(const JobFacts& facts);
std::string DescribeOptimizer(const JobFacts& facts);
std::string DescribeSchedule(const JobFacts& facts);
// Returns a clause that follows the schedule; empty without worker scaling.
std::string DescribeWorkerScaling(const JobFacts& facts);
std::string DescribeBudget(const JobFacts& facts);

// Returns sentences about the evaluations of a complete job: when they are made, what ends training early,
// which weights are saved.
std::string DescribeEvaluation(const v1::Job& job);

// Returns what `catchment validate --json` prints.
//
// Units: bytes and counts of values unless the key has a unit.
//   job, valid (true), servers, workers, parameters, bytes
//   budget     {samples, steps, steps_per_worker, updates, epochs}
//   block      {kib, parameters, count}
//   placement  [{server, begin, end (in the flat vector), parameters, bytes, against_even_percent, blocks}]
//   tensors    [{name, shape, parts: [{server, begin, end (in the tensor)}]}]
//   wire       {push_bytes, push_messages, push_every_steps, pull_bytes, pull_every_steps, bytes_per_step}
//              of one worker
//   memory     {servers: [{server, weights, optimizer_state, compensation, waiting, snapshot, total}],
//               worker: {model, algorithm, total}}
nlohmann::ordered_json JobToJson(const JobFacts& facts);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_EXPLANATION_H_
