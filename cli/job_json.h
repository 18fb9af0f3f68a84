// What `catchment validate --json` prints.
#ifndef CATCHMENT_CLI_JOB_JSON_H_
#define CATCHMENT_CLI_JOB_JSON_H_

#include "cli/job_facts.h"
#include "nlohmann/json.hpp"

namespace catchment {

// Units: bytes and counts of values where the key says nothing else.
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

#endif  // CATCHMENT_CLI_JOB_JSON_H_
