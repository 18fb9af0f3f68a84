// Tracks which workers have saved their own state for the checkpoint under way (Checkpointing.worker_state).
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_STATE_COLLECTION_H_
#define CATCHMENT_SERVER_MASTER_STATE_COLLECTION_H_

#include <cstdint>
#include <map>
#include <vector>

namespace catchment {

class StateCollection {
 public:
  // A checkpoint is announced to which the states of these workers belong, index by incarnation. `version`:
  // synchronous mode, of the checkpoint; otherwise 0. Those of the checkpoint before are forgotten.
  void Begin(uint64_t number, uint64_t version, std::map<uint64_t, uint32_t> workers);

  // Returns the number of the checkpoint; 0: none yet.
  uint64_t number() const { return number_; }
  // Returns the checkpoint for which the worker is to save its state before its next lease, which begins at
  // `version`; 0: there is none.
  uint64_t AskedFor(uint64_t incarnation, uint64_t version) const;

  // Returns whether the worker's state for this checkpoint is awaited.
  bool Awaits(uint64_t incarnation, uint64_t number) const;
  // The worker has saved its state.
  void SetSaved(uint64_t incarnation);
  // The worker's state will not come, or could not be saved.
  void Remove(uint64_t incarnation) { awaited_.erase(incarnation); }

  // Returns whether no state is awaited for checkpoint `number`.
  bool IsComplete(uint64_t number) const { return number != number_ || awaited_.empty(); }
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

#endif  // CATCHMENT_SERVER_MASTER_STATE_COLLECTION_H_
