// Errors that a peer has answered, or that the connection to it has had. Their codes mean what the peer's
// interface says: the NotFound of a master is a lost membership, and that of a file is a missing file.
#ifndef CATCHMENT_COMMON_NET_PEER_STATUS_H_
#define CATCHMENT_COMMON_NET_PEER_STATUS_H_

#include "absl/status/status.h"
#include "absl/strings/cord.h"
#include "absl/strings/string_view.h"

namespace catchment {

inline constexpr char kOfPeer[] = "catchment/of-peer";

// Marks an error as a peer's. FromGrpc does this.
inline absl::Status OfPeer(absl::Status status) {
  status.SetPayload(kOfPeer, absl::Cord());
  return status;
}

// Returns true for an error that OfPeer has marked.
inline bool IsOfPeer(const absl::Status& status) { return status.GetPayload(kOfPeer).has_value(); }

// Returns the error with another message, marked as it is.
inline absl::Status WithMessage(const absl::Status& status, absl::string_view message) {
  const absl::Status other(status.code(), message);
  return IsOfPeer(status) ? OfPeer(other) : other;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_NET_PEER_STATUS_H_
