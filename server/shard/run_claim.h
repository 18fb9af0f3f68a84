// The run of a job to which a server belongs: the first one that commands it, until the process ends or
// begins again from a checkpoint, with another claim. Commands, workers and readers of another run are
// refused, and so is a command for another server at this address: neither a second job nor a restarted
// master can change the weights of a run.
#ifndef CATCHMENT_SERVER_SHARD_RUN_CLAIM_H_
#define CATCHMENT_SERVER_SHARD_RUN_CLAIM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/base/mutex.h"
#include "proto/wire.pb.h"

namespace catchment {

// Returns "run 0123456789abcdef of job 'mnist' (master at node0:7000)".
std::string Describe(const v1::Run& run);

// Threads: safe.
class RunClaim {
 public:
  // `server_instance`: drawn when the process starts or begins again, never 0.
  explicit RunClaim(uint64_t server_instance) : server_instance_(server_instance) {}

  uint64_t server_instance() const { return server_instance_; }
  // Returns the run to which the server belongs; its id is 0 before a run has claimed it.
  v1::Run run() const;

  // Claims the server for `run`. Errors: FailedPrecondition, with both runs, if it belongs to another one.
  absl::Status Claim(const v1::Run& run);
  // Claims the server for the run of the command. Errors: those of Claim; NotFound if the command is for
  // another process.
  absl::Status Admit(const v1::ShardCommand& command);
  // Returns Aborted unless the server belongs to the run of `peer`, "the worker" for example, who is to ask
  // the master for the job again.
  absl::Status Check(uint64_t run_id, absl::string_view peer) const;

 private:
  absl::Status CheckUnclaimed(const v1::Run& run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t server_instance_;
  mutable Mutex mu_;
  v1::Run run_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_RUN_CLAIM_H_
