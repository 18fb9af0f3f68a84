// Why a run has ended at a server, if the master did not end it. Several threads may know first.
#ifndef CATCHMENT_SERVER_PROCESS_RUN_END_H_
#define CATCHMENT_SERVER_PROCESS_RUN_END_H_

#include <optional>

#include "absl/status/status.h"
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

}  // namespace catchment

#endif  // CATCHMENT_SERVER_PROCESS_RUN_END_H_
