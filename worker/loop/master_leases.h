// The calls of a LeaseSource to the master over gRPC.
#ifndef CATCHMENT_WORKER_LOOP_MASTER_LEASES_H_
#define CATCHMENT_WORKER_LOOP_MASTER_LEASES_H_

#include <algorithm>

#include "worker/loop/lease_source.h"
#include "worker/loop/master_client.h"
#include "worker/stop_flag.h"

namespace catchment {

// Threads: safe.
class MasterLeases final : public LeaseCalls {
 public:
  // Both outlive the object.
  MasterLeases(MasterClient* master, const StopFlag* stop) : master_(*master), stop_(*stop) {}

  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request) override {
    return master_.GetLease(request, stop_);
  }
  bool IsStopped() const override { return stop_.IsSet(); }
  void PauseUntil(absl::FunctionRef<bool()> is_done, double seconds) const override {
    for (double left = seconds; left > 0; left -= kLookSeconds) {
      if (stop_.Pause(std::min(left, kLookSeconds)) || is_done()) return;
    }
  }

 private:
  static constexpr double kLookSeconds = 0.02;

  MasterClient& master_;
  const StopFlag& stop_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_MASTER_LEASES_H_
