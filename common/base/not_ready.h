// The status of a process that runs and will serve a call later, for example when it has read its shard. A
// caller does not lose patience with it, as with one that cannot be reached.
#ifndef CATCHMENT_COMMON_BASE_NOT_READY_H_
#define CATCHMENT_COMMON_BASE_NOT_READY_H_

#include <string>

#include "absl/status/status.h"
#include "absl/strings/cord.h"

namespace catchment {

// The payload of such a status, and the details of its gRPC status (common/net/rpc.h).
inline constexpr char kNotReady[] = "catchment.not_ready";

// Returns an Unavailable status.
inline absl::Status NotReady(const std::string& message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kNotReady, absl::Cord());
  return status;
}

inline bool IsNotReady(const absl::Status& status) { return status.GetPayload(kNotReady).has_value(); }

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_NOT_READY_H_
