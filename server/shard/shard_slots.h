// The state of a shard for each block and each worker. Only for the shard's own files.
#ifndef CATCHMENT_SERVER_SHARD_SHARD_SLOTS_H_
#define CATCHMENT_SERVER_SHARD_SHARD_SLOTS_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "server/shard/group.h"
#include "server/shard/momentum_control.h"
#include "server/shard/push_ledger.h"
#include "server/shard/ring.h"
#include "server/shard/shard.h"

namespace catchment {

// A contribution to an update, and its outcome.
struct Shard::Contribution {
  Request request;
  Payload answer;  // the contribution's own vector, or the weights
  v1::Block::Fate fate = v1::Block::FATE_UNSET;
  uint64_t staleness = 0;
  std::optional<Lag> lag;
};

// The state of a block. Vectors keep their memory from update to update.
struct Shard::BlockSlot {
  // A contribution that is applied, and is answered when the slowest workers have caught up.
  struct Held {
    Contribution contribution;
    uint64_t version = 0;  // of the block, including this contribution
    uint64_t clock = 0;    // of its worker, including this contribution
  };

  Range local;                       // in the shard's vectors
  std::vector<int64_t> tensor_ends;  // in the block, if the layout has whole tensors
  Mutex mu;
  v1::BlockState state ABSL_GUARDED_BY(mu);
  // The waiting contributions, by group or in order of arrival.
  std::vector<Group> groups ABSL_GUARDED_BY(mu);
  Ring<Request> queue ABSL_GUARDED_BY(mu);
  std::vector<Contribution> contributions ABSL_GUARDED_BY(mu);     // to the current update
  std::vector<Rule::Contribution> applicable ABSL_GUARDED_BY(mu);  // the finite ones, for the rule
  std::vector<Request> pulls ABSL_GUARDED_BY(mu);                  // of later versions
  std::unique_ptr<MomentumControl> momentum ABSL_GUARDED_BY(mu);   // if the job has one
  // Only with a staleness bound.
  std::vector<Gate::Finished> finished ABSL_GUARDED_BY(mu);  // by worker index
  std::vector<Held> held ABSL_GUARDED_BY(mu);
  // The snapshots to which the block must be copied before it changes.
  std::vector<PendingSnapshot*> marks ABSL_GUARDED_BY(mu);
};

// The state of a worker.
struct Shard::WorkerSlot {
  explicit WorkerSlot(int num_blocks) : ledger(num_blocks), sent(num_blocks) {}

  // Begins another incarnation of the worker.
  void Begin(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ledger.Begin(incarnation);
    open_connections = 0;
    closed_by_peer = false;
  }

  Mutex mu;
  PushLedger ledger ABSL_GUARDED_BY(mu);
  std::vector<Sent> sent ABSL_GUARDED_BY(mu);  // by block
  // Connections of the ledger's incarnation.
  int open_connections ABSL_GUARDED_BY(mu) = 0;
  bool closed_by_peer ABSL_GUARDED_BY(mu) = false;  // the last connection that ended
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SHARD_SLOTS_H_
