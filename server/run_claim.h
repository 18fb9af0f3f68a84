// Which run of a job a server process belongs to: the first one that commands it, until the process ends. A
// command, worker or reader of another run is refused, and so is a command that was meant for another process
// at this address: neither a second job nor a master that was started again can change what a run is
// training.
#ifndef CATCHMENT_SERVER_RUN_CLAIM_H_
#define CATCHMENT_SERVER_RUN_CLAIM_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/mutex.h"
#include "proto/wire.pb.h"

namespace catchment {

// Returns "run 0123456789abcdef of job 'mnist' (master at node0:7000)".
std::string Describe(const v1::Run& run);

// Threads: safe.
class RunClaim {
 public:
  // `server_instance`: of this process, never 0.
  explicit RunClaim(uint64_t server_instance) : server_instance_(server_instance) {}

  uint64_t server_instance() const { return server_instance_; }
  // The run that the server belongs to; its id is 0 while none has claimed it.
  v1::Run run() const;

  // Claims the server for `run`. FailedPrecondition, naming both runs, when it belongs to another one.
  absl::Status Claim(const v1::Run& run);
  // Claims the server for the run of the command. Errors: those of Claim; NotFound when another process is
  // meant.
  absl::Status Admit(const v1::ShardCommand& command);
  // FailedPrecondition unless the server belongs to the run; `peer` is who says so: "the worker".
  absl::Status Check(uint64_t run_id, absl::string_view peer) const;

 private:
  absl::Status CheckUnclaimed(const v1::Run& run) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const uint64_t server_instance_;
  mutable Mutex mu_;
  v1::Run run_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RUN_CLAIM_H_
