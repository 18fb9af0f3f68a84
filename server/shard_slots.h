// What a shard keeps for each block and each worker; for the shard's own files.
#ifndef CATCHMENT_SERVER_SHARD_SLOTS_H_
#define CATCHMENT_SERVER_SHARD_SLOTS_H_

#include <memory>
#include <optional>
#include <vector>

#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "server/compensation/momentum_control.h"
#include "server/group.h"
#include "server/push_ledger.h"
#include "server/ring.h"
#include "server/shard.h"

namespace catchment {

// To an update, and what becomes of it.
struct Shard::Contribution {
  Request request;
  Payload answer;  // the vector that is its own, or the weights
  v1::Block::Fate fate = v1::Block::FATE_UNSET;
  uint64_t staleness = 0;
  std::optional<Lag> lag;
};

// Vectors keep their memory from update to update.
struct Shard::BlockSlot {
  // One that is applied, and answered when the slowest workers have come closer.
  struct Held {
    Contribution contribution;
    uint64_t version = 0;  // of the block, with it
    uint64_t clock = 0;    // of its worker, with it
  };

  Range local;                       // in the shard's vectors
  std::vector<int64_t> tensor_ends;  // in the block, where the layout has whole tensors
  Mutex mu;
  v1::BlockState state ABSL_GUARDED_BY(mu);
  // Contributions that wait: of each group, or in order of arrival.
  std::vector<Group> groups ABSL_GUARDED_BY(mu);
  Ring<Request> queue ABSL_GUARDED_BY(mu);
  std::vector<Contribution> contributions ABSL_GUARDED_BY(mu);     // to the update that is made
  std::vector<Rule::Contribution> applicable ABSL_GUARDED_BY(mu);  // those that are finite, for the rule
  std::vector<Request> pulls ABSL_GUARDED_BY(mu);                  // of versions to come
  std::unique_ptr<MomentumControl> momentum ABSL_GUARDED_BY(mu);   // where the job has one
  // Where the gate is bounded.
  std::vector<Gate::Finished> finished ABSL_GUARDED_BY(mu);  // by worker index
  std::vector<Held> held ABSL_GUARDED_BY(mu);
  // Snapshots that the block is to be copied to, before it changes.
  std::vector<PendingSnapshot*> marks ABSL_GUARDED_BY(mu);
};

struct Shard::WorkerSlot {
  explicit WorkerSlot(int num_blocks) : ledger(num_blocks), sent(num_blocks) {}

  // Another incarnation of the worker takes the place.
  void Begin(uint64_t incarnation) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ledger.Begin(incarnation);
    open_connections = 0;
    closed_by_peer = false;
  }

  Mutex mu;
  PushLedger ledger ABSL_GUARDED_BY(mu);
  std::vector<Sent> sent ABSL_GUARDED_BY(mu);  // by block
  // Of the ledger's incarnation.
  int open_connections ABSL_GUARDED_BY(mu) = 0;
  bool closed_by_peer ABSL_GUARDED_BY(mu) = false;  // the connection that ended last
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SLOTS_H_
