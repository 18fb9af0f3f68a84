// The loss of a membership, after which a worker or an evaluator registers again. No other error looks like
// it: only the master and the servers can say that a registration no longer counts.
#ifndef CATCHMENT_WORKER_MEMBERSHIP_H_
#define CATCHMENT_WORKER_MEMBERSHIP_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "common/net/peer_status.h"

namespace catchment {

// Returns the error of a member that has to register again.
inline absl::Status MembershipLost(absl::string_view why) { return OfPeer(absl::AbortedError(why)); }

// Returns true for MembershipLost, and for the answer of the master (NotFound) or a server (Aborted) that
// does not count the registration any longer.
inline bool IsMembershipLost(const absl::Status& status) {
  return IsOfPeer(status) && (absl::IsNotFound(status) || absl::IsAborted(status));
}

}  // namespace catchment

#endif  // CATCHMENT_WORKER_MEMBERSHIP_H_
