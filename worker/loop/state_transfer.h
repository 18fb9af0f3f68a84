// Sends a worker's own state to the master for a checkpoint, and gets it back after a resume (SaveWorkerState
// and LoadWorkerState in proto/master.proto).
#ifndef CATCHMENT_WORKER_LOOP_STATE_TRANSFER_H_
#define CATCHMENT_WORKER_LOOP_STATE_TRANSFER_H_

#include <cstdint>

#include "absl/status/status.h"
#include "worker/loop/master_client.h"
#include "worker/worker_state.h"

namespace catchment {

// The worker that the state belongs to, as it is registered.
struct StateOwner {
  uint32_t worker = 0;
  uint64_t incarnation = 0;
};

// Saves `state` as a part of checkpoint `checkpoint`; it is on disk when this returns OK. Errors: those of
// MasterClient, among them FailedPrecondition if the checkpoint does not wait for the state any more.
absl::Status SaveState(const WorkerState& state, const StateOwner& owner, uint64_t checkpoint,
                       MasterClient* master);

// Restores the parts of `state` that the job's checkpoint contains. Other parts do not change, and parts of
// the checkpoint that another algorithm saved are ignored. Errors: those of MasterClient;
// DataLoss for values that do not fit.
absl::Status LoadState(const StateOwner& owner, MasterClient* master, WorkerState* state);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_LOOP_STATE_TRANSFER_H_
