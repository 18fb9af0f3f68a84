// A valid job, explained in words and as JSON.
#ifndef CATCHMENT_CLI_JOB_JOB_EXPLANATION_H_
#define CATCHMENT_CLI_JOB_JOB_EXPLANATION_H_

#include <string>
#include <vector>

#include "cli/job/job_facts.h"
#include "common/job/parameter_layout.h"
#include "nlohmann/json.hpp"
#include "proto/job.pb.h"

namespace catchment {

// Returns the whole text: algorithm, model, servers, worker, wire.
std::string ExplainJob(const JobFacts& facts);

// Each returns a part of it.
std::string ExplainAlgorithm(const JobFacts& facts);
std::string ExplainModel(const JobFacts& facts);
// Returns "" if the job has no groups of parameters.
std::string ExplainGroups(const JobFacts& facts);
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
//   groups     [{names, weight_decay, learning_rate_factor, frozen (as far as they are set),
//               tensors, parameters (counts)}], of optimizer.groups
//   wire       {push_bytes, push_messages, push_every_steps, pull_bytes, pull_every_steps, bytes_per_step}
//              of one worker
//   memory     {servers: [{server, weights, optimizer_state, compensation, waiting, snapshot, standby,
//                          total}], worker: {model, algorithm, total}}
//   version, text, settings, facts: docs/doors.md
nlohmann::ordered_json JobToJson(const JobFacts& facts);
// Return parts of it.
nlohmann::ordered_json GroupsToJson(const JobFacts& facts);
nlohmann::ordered_json SettingsToJson(const google::protobuf::Message& message);
nlohmann::ordered_json FactsToJson(const JobFacts& facts);

// A server's values of one tensor, counted from the tensor's first.
struct TensorPart {
  int server = 0;
  Range values;
};

// Returns the parts of a tensor in order: one unless the tensor is split.
std::vector<TensorPart> PartsOf(const ParameterLayout& layout, int tensor);

// Returns the excess of a server's bytes over an even share: 0.01 for 1 % more.
double AgainstEven(const ParameterLayout& layout, int server);

// Returns the number of blocks on all servers, which is the number of messages of a push or of a pull.
int64_t CountBlocks(const ParameterLayout& layout);
// Returns the number for blocks of `block_size` values that may begin anywhere.
int64_t CountBlocks(const ParameterLayout& layout, int64_t block_size);

// Returns which server has which part of the parameters, in how many blocks, and which tensors are split.
std::string ExplainPlacement(const JobFacts& facts);

// Returns the servers that a table shows: all, or of many the first and the last ones with -1 in between.
std::vector<int> ShownServers(int servers);

}  // namespace catchment

#endif  // CATCHMENT_CLI_JOB_JOB_EXPLANATION_H_
