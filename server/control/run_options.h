// The facts of one run of a job that its control plane needs. They do not change during the run.
#ifndef CATCHMENT_SERVER_CONTROL_RUN_OPTIONS_H_
#define CATCHMENT_SERVER_CONTROL_RUN_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/job_history.h"

namespace catchment {

// Returns true if a job with this number of servers keeps copies of its shards (Faults.standby).
inline bool HasStandbys(const v1::Job& job, size_t servers) {
  return job.faults().standby() > 0 && servers > 1;
}

struct RunOptions {
  v1::Job job;
  int num_servers = 1;
  std::vector<std::string> servers;  // --servers; empty: servers may register from any address
  uint64_t resumed_checkpoint = 0;
  uint64_t resumed_version = 0;    // the highest version of a shard in that checkpoint
  uint64_t run_id = 0;             // random, never 0
  std::string token_key;           // Run.token_key: random
  bool insecure = false;           // JobStatus.insecure
  uint64_t first_incarnation = 1;  // higher than those of all earlier runs
  v1::RunRecord record;            // of the job's earlier runs
  int evaluators = 0;              // expected ones, for one of which the final evaluation waits
  std::optional<RunLoss> loss;     // that the run recovers from
  // The process continues the run of a master that was lost (Continue).
  struct Restored {
    v1::MasterCopy copy;
    v1::EvaluationReports evaluations;
    uint64_t epoch = 0;  // of shard 0
  };
  std::optional<Restored> restored;

  // Copies everything that describes the run.
  void Continue(Restored from) {
    run_id = from.copy.run_id();
    token_key = from.copy.token_key();
    resumed_checkpoint = from.copy.resumed_checkpoint();
    resumed_version = from.copy.resumed_version();
    record = from.copy.record();
    loss.reset();
    restored = std::move(from);
  }
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_RUN_OPTIONS_H_
