// Ends a call in which nothing moves any more.
#ifndef CATCHMENT_COMMON_STALL_GUARD_H_
#define CATCHMENT_COMMON_STALL_GUARD_H_

#include <grpcpp/grpcpp.h>

#include <thread>

#include "absl/status/status.h"
#include "common/clock.h"
#include "common/mutex.h"

namespace catchment {

// Watches a streaming call, on a thread of its own, from construction to destruction. A deadline would also
// end a call that goes on over a slow network; this limits only the time between two messages.
//
// Threads: safe.
class StallGuard {
 public:
  // Cancels the call when `seconds` pass without Progress. `context` and `clock` outlive the guard.
  StallGuard(grpc::ClientContext* context, double seconds, const Clock* clock);
  ~StallGuard();

  // A message has arrived, or has been sent.
  void Progress();

  // Returns DeadlineExceeded where the guard has ended the call, and otherwise `status`, its own.
  absl::Status Explain(const absl::Status& status);

 private:
  void Run();

  grpc::ClientContext& context_;
  const double seconds_;
  const Clock& clock_;
  Mutex mu_;
  CondVar changed_;
  double moved_at_ ABSL_GUARDED_BY(mu_);
  bool stalled_ ABSL_GUARDED_BY(mu_) = false;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_STALL_GUARD_H_
