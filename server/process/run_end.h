// Why a run has ended at a server, if the master did not end it. Several threads may know first.
#ifndef CATCHMENT_SERVER_PROCESS_RUN_END_H_
#define CATCHMENT_SERVER_PROCESS_RUN_END_H_

#include <string.h>

#include <cstdlib>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/mutex.h"
#include "proto/master.pb.h"

namespace catchment {

struct RunEnd {
  Mutex mu;
  absl::Status failure ABSL_GUARDED_BY(mu);
  // Says how the server must begin again.
  std::optional<v1::RegisterServerReply> again ABSL_GUARDED_BY(mu);
  bool leaving ABSL_GUARDED_BY(mu) = false;  // the server was asked to end
  bool ended ABSL_GUARDED_BY(mu) = false;    // the job, without this server

  void Fail(const absl::Status& status) {
    MutexLock lock(&mu);
    failure = status;
  }
  absl::Status Failure() {
    MutexLock lock(&mu);
    return failure;
  }
};

// Returns "SIGTERM", and in a Slurm job who may have sent it.
inline std::string DescribeSignal(int signal) {
  const char* const name = sigabbrev_np(signal);
  const char* const slurm = std::getenv("SLURM_JOB_ID");
  return absl::StrCat(
      "SIG", name == nullptr ? "?" : name,
      slurm == nullptr ? "" : absl::StrCat(" (Slurm job ", slurm, " was cancelled, or its time was up)"));
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_RUN_END_H_
