// Restores a shard from its standby.
#ifndef CATCHMENT_SERVER_EDGE_RESTORE_SHARD_H_
#define CATCHMENT_SERVER_EDGE_RESTORE_SHARD_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/job.pb.h"
#include "proto/standby.pb.h"
#include "server/shard/shard_contents.h"

namespace catchment {

// Returns the description of the process that has epoch `epoch` of a shard.
v1::StandbyHello MakeStandbyHello(const ParameterLayout& layout, int shard, uint64_t run_id, uint64_t epoch);

struct RestoredCopy {
  ShardContents contents;
  uint64_t epoch = 0;  // of the process that restores the shard
  // For shard 0: StandbyPart.master and StandbyPart.evaluations; empty: none.
  std::string master;
  std::string evaluations;
};

// Reads the copy of shard `hello.shard()` from the standby at `address`, as the process of epoch
// `hello.epoch()`. Tries for `seconds` to reach a standby that has not joined the run yet, or is unreachable.
// Errors: NotFound if the standby has no complete copy; Unavailable.
absl::StatusOr<RestoredCopy> RestoreShard(const std::string& address,
                                          const std::shared_ptr<grpc::ChannelCredentials>& credentials,
                                          const v1::StandbyHello& hello, const v1::Job& job,
                                          const ParameterLayout& layout, double seconds, const Clock& clock);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_RESTORE_SHARD_H_
