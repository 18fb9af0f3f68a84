// A shard with its checkpoints, under the master's command.
#ifndef CATCHMENT_SERVER_SHARD_HOST_H_
#define CATCHMENT_SERVER_SHARD_HOST_H_

#include <string>

#include "absl/status/statusor.h"
#include "common/parameter_layout.h"
#include "proto/job.pb.h"
#include "proto/wire.pb.h"
#include "server/checkpoint_writer.h"
#include "server/compensation/momentum_log.h"
#include "server/shard.h"

namespace catchment {

// What a shard begins with: the job's initial weights, or, with `resumed`, the checkpoint's.
// Errors: those of reading the checkpoint.
absl::StatusOr<Shard::Contents> MakeContents(const v1::Job& job, const ParameterLayout& layout, int index,
                                             const std::string& checkpoint_dir, const v1::Manifest* resumed);

// Threads: safe.
class ShardHost {
 public:
  // `layout` outlives the host. `checkpoint_dir` may be empty: nothing is kept.
  ShardHost(const v1::Job& job, const ParameterLayout& layout, int index, Shard::Contents contents,
            const std::string& checkpoint_dir);

  // Takes the rosters, makes a checkpoint, notes the end; says how the shard stands. `now`: seconds, on the
  // clock that requests come with.
  v1::ShardReport Control(const v1::ShardCommand& command, double now);

  Shard* shard() { return &shard_; }

  // Whether the master has said that the job is over.
  bool WaitForStop(double seconds);

  // Whether the master has said that the job trains.
  bool training();

 private:
  CheckpointWriter writer_;
  Shard shard_;
  Mutex mu_;
  CondVar changed_;
  bool stop_ ABSL_GUARDED_BY(mu_) = false;
  bool training_ ABSL_GUARDED_BY(mu_) = false;
  MomentumLog momentum_log_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_HOST_H_
