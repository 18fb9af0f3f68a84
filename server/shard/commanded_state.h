// The state of a shard that the master's commands set, as opposed to the state that requests change.
#ifndef CATCHMENT_SERVER_SHARD_COMMANDED_STATE_H_
#define CATCHMENT_SERVER_SHARD_COMMANDED_STATE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "common/base/mutex.h"
#include "proto/job.pb.h"
#include "server/shard/gate.h"
#include "server/shard/push_ledger.h"
#include "server/shard/request.h"

namespace catchment {

// The state of a worker at a shard. It is kept when the worker leaves.
struct WorkerRecord {
  // `fragments`: of each block of the shard.
  explicit WorkerRecord(const std::vector<uint32_t>& fragments)
      : WorkerRecord(PushLedger(fragments), fragments.size()) {}
  WorkerRecord(PushLedger ledger, size_t num_blocks) : ledger(std::move(ledger)), sent(num_blocks) {}

  // Begins another incarnation of the worker, at this version of the shard.
  void Begin(uint64_t incarnation, uint64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu) {
    ledger.Begin(incarnation);
    for (Sent& each : sent) each = {.version = version, .version_before = version};
    open_connections = 0;
    closed_by_peer = false;
    sink.reset();
  }

  Mutex mu;
  PushLedger ledger ABSL_GUARDED_BY(mu);
  std::vector<Sent> sent ABSL_GUARDED_BY(mu);  // by block
  // Connections of the ledger's incarnation.
  int open_connections ABSL_GUARDED_BY(mu) = 0;
  bool closed_by_peer ABSL_GUARDED_BY(mu) = false;     // the last connection that ended
  std::weak_ptr<AnswerSink> sink ABSL_GUARDED_BY(mu);  // of the newest connection
};

// Threads: not safe; the shard guards it with a reader-writer lock. The records of workers have their own.
struct CommandedState {
  explicit CommandedState(const v1::Algorithm& algorithm) : gate(algorithm) {}

  Gate gate;
  std::map<uint32_t, std::unique_ptr<WorkerRecord>> workers;  // by index; also former members
  uint64_t total_samples = 0;                                 // the budget; 0: unknown
  uint64_t most_samples = 0;                                  // ShardCommand.most_samples
  double plateau_factor = 1;                                  // of the learning rate
  double step_seconds = 0;                                    // ShardCommand.step_seconds
  // The number of the next checkpoint, and the updates of all blocks after which it is taken.
  uint64_t checkpoint = 0;
  uint64_t checkpoint_updates = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_COMMANDED_STATE_H_
