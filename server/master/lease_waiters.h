// Workers whose call for a lease waits at the master until there is one, or a change that gives another
// answer: a long poll. None of them costs a thread, and all are asked for again only when what leases depend
// on has changed (Master::LeaseConditions).
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_LEASE_WAITERS_H_
#define CATCHMENT_SERVER_MASTER_LEASE_WAITERS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "server/master/master.h"

namespace catchment {

class LeaseWaiters {
 public:
  using Respond = std::function<void(absl::StatusOr<v1::Lease>)>;
  // What is to be answered, once no lock is held.
  struct Answer {
    Respond respond;
    absl::StatusOr<v1::Lease> lease;
  };
  using Ask = std::function<absl::StatusOr<v1::Lease>(const v1::GetLeaseRequest&)>;

  // A call that is to be answered by `until`.
  struct Waiter {
    v1::GetLeaseRequest request;
    double until = 0;
    v1::Lease answer;  // "wait", under the conditions of now
    Respond respond;
  };
  // An older call of the same worker, which its client has given up, is to be answered by the caller.
  std::optional<Answer> Add(Waiter waiter, const Master::LeaseConditions& conditions);

  // Whether Review would ask again.
  bool NeedReview(const Master::LeaseConditions& conditions) const {
    return !waiters_.empty() && (overdue_ || conditions != reviewed_);
  }
  // Asks again for those who wait where the conditions have changed, and returns the answers that are due:
  // all but "wait", and every one whose time is over.
  std::vector<Answer> Review(const Master::LeaseConditions& conditions, double now, const Ask& ask);
  // Returns answers to all, as they are now.
  std::vector<Answer> TakeAll(const Ask& ask);

  size_t size() const { return waiters_.size(); }

 private:
  std::map<uint64_t, Waiter> waiters_;  // by incarnation
  Master::LeaseConditions reviewed_;
  bool overdue_ = false;  // conditions have been others than reviewed_ since the last review
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_LEASE_WAITERS_H_
