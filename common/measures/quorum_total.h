// The updates of blocks that quorums have made (consistency.quorum), over all servers.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_QUORUM_TOTAL_H_
#define CATCHMENT_COMMON_MEASURES_QUORUM_TOTAL_H_

#include <cstdint>
#include <map>
#include <optional>

#include "proto/master.pb.h"

namespace catchment {

struct QuorumTotal {
  // The updates by what ended the wait for contributions, as in QuorumStatistics (proto/wire.proto).
  uint64_t by_all = 0;
  uint64_t by_grace = 0;
  uint64_t by_loss = 0;
  double grace_seconds = 0;
  std::map<uint64_t, uint64_t> merged;  // contributions -> updates

  uint64_t updates() const { return by_all + by_grace + by_loss; }
  // Returns the mean number of contributions in an update; 0 without updates.
  double merged_mean() const;
  // Returns the mean time from the arrival of a quorum to its update; 0 without updates.
  double grace_seconds_mean() const;
};

// Returns nothing if no server reports updates of a quorum.
std::optional<QuorumTotal> TotalQuorum(const v1::JobStatus& status);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_QUORUM_TOTAL_H_
