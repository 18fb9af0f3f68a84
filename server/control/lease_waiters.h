// Holds the calls of workers that wait at the master for a lease (long polling). A waiting call uses no
// thread, and is reconsidered only when the conditions that leases depend on have changed
// (JobLeases::Conditions).
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_LEASE_WAITERS_H_
#define CATCHMENT_SERVER_CONTROL_LEASE_WAITERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "server/control/calls.h"
#include "server/control/job_leases.h"

namespace catchment {

class LeaseWaiters {
 public:
  using Ask = std::function<absl::StatusOr<v1::Reply>(const v1::GetLeaseRequest&)>;

  // A call that must be answered by `until`.
  struct Waiter {
    v1::GetLeaseRequest request;
    double until = 0;
    v1::Reply reply;  // WAIT, under the current conditions
    Respond respond;
  };
  // Adds a waiter. If an older call of the same worker is still waiting, its client has given it up; the
  // caller must send the returned reply to it.
  std::optional<ReadyReply> Add(Waiter waiter, const JobLeases::Conditions& conditions);

  // Returns true if Review would call `ask`.
  bool NeedReview(const JobLeases::Conditions& conditions) const {
    return !waiters_.empty() && (overdue_ || conditions != reviewed_);
  }
  // Asks again for all waiters if the conditions have changed, and returns the replies that are due: those
  // other than WAIT, and those of calls whose time has expired.
  std::vector<ReadyReply> Review(const JobLeases::Conditions& conditions, double now, const Ask& ask);
  // Removes all waiters and returns their current replies.
  std::vector<ReadyReply> TakeAll(const Ask& ask);

  size_t size() const { return waiters_.size(); }

 private:
  std::map<uint64_t, Waiter> waiters_;  // by incarnation
  JobLeases::Conditions reviewed_;
  bool overdue_ = false;  // conditions have differed from reviewed_ since the last review
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_LEASE_WAITERS_H_
