// Tracks which workers have saved their states for the checkpoint in progress (Checkpointing.worker_state).
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_STATE_COLLECTION_H_
#define CATCHMENT_SERVER_CONTROL_STATE_COLLECTION_H_

#include <cstdint>
#include <map>
#include <vector>

#include "proto/master_image.pb.h"

namespace catchment {

class StateCollection {
 public:
  // Begins a checkpoint that includes the states of `workers` (index by incarnation), and forgets the
  // previous one. `version` is that of the checkpoint; 0: it is taken at once.
  void Begin(uint64_t number, uint64_t version, std::map<uint64_t, uint32_t> workers);

  // Returns the number of the checkpoint; 0 if there is none yet.
  uint64_t number() const { return number_; }
  // Returns the checkpoint for which the worker must save its state before its next lease; 0 if there is
  // none. `version`: the one at which that lease begins in synchronous mode, otherwise the highest of the
  // shards.
  uint64_t AskedFor(uint64_t incarnation, uint64_t version) const;

  // Returns true if the worker's state for this checkpoint is awaited.
  bool Awaits(uint64_t incarnation, uint64_t number) const;
  // Notes that the worker has saved its state.
  void SetSaved(uint64_t incarnation);
  // Notes that the worker's state will not be sent, or could not be saved.
  void Remove(uint64_t incarnation) { awaited_.erase(incarnation); }

  v1::StateCollectionImage Save() const;
  void Restore(const v1::StateCollectionImage& image);

  // Returns true if no state is awaited for checkpoint `number`.
  bool IsComplete(uint64_t number) const { return number != number_ || awaited_.empty(); }
  size_t num_saved() const { return saved_.size(); }
  bool IsSaved(uint64_t incarnation) const { return saved_.count(incarnation) > 0; }
  // Returns the indices of the workers whose states are saved for checkpoint `number`, ascending.
  std::vector<uint32_t> Saved(uint64_t number) const;

 private:
  uint64_t number_ = 0;
  uint64_t version_ = 0;
  std::map<uint64_t, uint32_t> awaited_;  // index by incarnation
  std::map<uint64_t, uint32_t> saved_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_STATE_COLLECTION_H_
