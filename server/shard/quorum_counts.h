// Counts the updates of a shard's blocks that a quorum makes (consistency.quorum), for reports.
//
// Threads: safe; its lock is taken last.
#ifndef CATCHMENT_SERVER_SHARD_QUORUM_COUNTS_H_
#define CATCHMENT_SERVER_SHARD_QUORUM_COUNTS_H_

#include <cstdint>
#include <map>
#include <unordered_map>

#include "absl/types/span.h"
#include "common/base/mutex.h"
#include "proto/wire.pb.h"

namespace catchment {

class QuorumCounts {
 public:
  // The event that ended the wait for contributions.
  enum class End {
    kAll,    // the contribution of the last active member arrived
    kGrace,  // the grace of a quorum passed
    kLoss,   // the last members that were missing left, or had no more work
  };
  // A contribution to an update.
  struct Share {
    uint32_t worker = 0;
    uint64_t samples = 0;
  };

  // `grace_seconds`: since the quorum was in. `shares`: the finite contributions of different workers.
  void Count(End end, double grace_seconds, absl::Span<const Share> shares);

  v1::QuorumStatistics Statistics() const;
  // Returns the sum over all updates of the worker's share of their samples.
  double SharesOf(uint32_t worker) const;

 private:
  mutable Mutex mu_;
  uint64_t by_all_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t by_grace_ ABSL_GUARDED_BY(mu_) = 0;
  uint64_t by_loss_ ABSL_GUARDED_BY(mu_) = 0;
  double grace_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  std::map<uint64_t, uint64_t> merged_ ABSL_GUARDED_BY(mu_);  // contributions -> updates
  std::unordered_map<uint32_t, double> shares_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_QUORUM_COUNTS_H_
