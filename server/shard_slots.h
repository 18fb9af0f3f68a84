// What a shard keeps for each block and each worker; for the shard's own files.
#ifndef CATCHMENT_SERVER_SHARD_SLOTS_H_
#define CATCHMENT_SERVER_SHARD_SLOTS_H_

#include <vector>

#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "server/push_ledger.h"
#include "server/shard.h"

namespace catchment {

// Vectors keep their memory from update to update.
struct Shard::BlockSlot {
  struct Contribution {
    Request request;
    Payload answer;  // the vector that is its own, or the weights
  };

  Range local;  // in the shard's vectors
  Mutex mu;
  v1::BlockState state ABSL_GUARDED_BY(mu);
  std::vector<Contribution> contributions ABSL_GUARDED_BY(mu);   // to the next version, by worker
  std::vector<uint32_t> arrived ABSL_GUARDED_BY(mu);             // their workers, for the gate
  std::vector<Rule::Contribution> applicable ABSL_GUARDED_BY(mu);  // those that are finite, for the rule
  std::vector<Request> pulls ABSL_GUARDED_BY(mu);                // of versions to come
};

struct Shard::WorkerSlot {
  explicit WorkerSlot(int num_blocks) : ledger(num_blocks) {}

  Mutex mu;
  PushLedger ledger ABSL_GUARDED_BY(mu);
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_SLOTS_H_
