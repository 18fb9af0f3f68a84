// Cancels a streaming call that makes no progress.
#ifndef CATCHMENT_COMMON_NET_STALL_GUARD_H_
#define CATCHMENT_COMMON_NET_STALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <thread>

#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/base/patience.h"

namespace catchment {

// Watches a streaming call on a separate thread from construction to destruction. It limits the time between
// two messages; a deadline would also end a call that makes progress over a slow network. Time in which this
// process did not run does not count.
//
// Threads: safe.
class StallGuard {
 public:
  // Cancels the call after `seconds` without Progress. `context` and `clock` must outlive the guard.
  StallGuard(grpc::ClientContext* context, double seconds, const Clock* clock);
  ~StallGuard();

  // Notes that a message has arrived or has been sent.
  void Progress();

  // Returns DeadlineExceeded if the guard has canceled the call, otherwise `status`, the status of the call.
  absl::Status Explain(const absl::Status& status);

 private:
  void Run();

  grpc::ClientContext& context_;
  const Clock& clock_;
  Mutex mu_;
  CondVar changed_;
  Patience patience_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_STALL_GUARD_H_
