// The checkpoints of a job, from their announcement until their manifests are written: which one is due,
// which shards and workers have saved their states for it, and which ones wait for their manifests.
//
// Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_CHECKPOINTS_H_
#define CATCHMENT_SERVER_CONTROL_JOB_CHECKPOINTS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/checkpoint_schedule.h"
#include "server/control/checkpoint_tracker.h"
#include "server/control/data_ledger.h"
#include "server/control/shard_reports.h"
#include "server/control/state_collection.h"

namespace catchment {

// A checkpoint that all shards have saved. Its manifest has not been written yet.
struct CompleteCheckpoint {
  uint64_t number = 0;
  std::vector<v1::SavedShard> shards;  // by index
  v1::MasterState state;
};

class JobCheckpoints {
 public:
  JobCheckpoints(const v1::Job& job, int num_shards, uint64_t first_version);

  // Announces a checkpoint if one is due, and returns true if so (CheckpointSchedule::Step). The caller need
  // not set `earlier` and `draining` of the facts.
  bool Announce(CheckpointSchedule::Facts facts, uint64_t generation);
  const CheckpointSchedule::Announced& last() const { return schedule_.last(); }
  // Requests the states of the workers (index by incarnation) for the last checkpoint.
  void BeginStates(std::map<uint64_t, uint32_t> workers);
  // Notes that a stop was requested of a job whose checkpoints have workers' states: it takes one more.
  void Drain() { draining_ = true; }
  bool draining() const { return draining_; }
  // Returns true if the job drains and that checkpoint is not recorded. Synchronous mode: `granted` is the
  // version after all granted updates.
  bool Drains(uint64_t granted) const;

  // Returns the checkpoints that, with this report, all shards have saved, for Hold.
  std::vector<CheckpointTracker::Saved> Observe(const v1::ShardReport& report) {
    return tracker_.Observe(report);
  }
  // Holds a checkpoint until the states of the workers are saved, and returns true, unless another one has
  // been announced in the meantime. `final_number`: that of the job's last checkpoint, if it is known.
  bool Hold(CheckpointTracker::Saved saved, uint64_t final_number);
  bool holds() const { return held_.has_value(); }
  // Returns the state of the shards in the checkpoint that is held, if all states of workers are saved. The
  // result is valid until the next call. Complete takes the master's state at the cut.
  std::optional<Cut> CutToComplete() const;
  void Complete(v1::MasterState state);

  // Returns FailedPrecondition if checkpoint `number` does not wait for the state of this worker.
  absl::Status CheckStateIsWanted(uint64_t incarnation, uint64_t number) const;
  // Notes that the state of a worker, which is awaited, is saved.
  void SetStateSaved(uint64_t incarnation) { states_.SetSaved(incarnation); }
  // Notes that the worker's state will not be sent, or could not be saved.
  void RemoveState(uint64_t incarnation) { states_.Remove(incarnation); }
  // Returns the checkpoint for which the worker must save its state (StateCollection::AskedFor).
  uint64_t AskedFor(uint64_t incarnation, uint64_t version) const {
    return states_.AskedFor(incarnation, version);
  }
  // Returns the checkpoint for which workers save their states; 0: none yet.
  uint64_t states_for() const { return states_.number(); }
  // Returns the number of saved states while that of this worker is awaited.
  std::optional<uint64_t> SavedBefore(uint64_t incarnation) const;

  // Returns the checkpoints completed since the previous call, by number.
  std::vector<CompleteCheckpoint> TakeComplete();
  // Returns the number of complete checkpoints that are not recorded.
  size_t num_complete() const { return complete_.size() + taken_.size(); }
  // Notes whether the manifest of a complete checkpoint was written.
  void OnRecorded(uint64_t number, const absl::Status& status);
  // Returns true if every shard has saved checkpoint `number`, and it is recorded.
  bool IsRecorded(uint64_t number) const {
    return tracker_.AllSaved(number) && tracker_.recorded() >= number;
  }
  // As those of CheckpointTracker and CheckpointSchedule.
  uint64_t recorded() const { return tracker_.recorded(); }
  uint64_t earlier() const { return tracker_.earlier(); }
  uint64_t LowestNeeded(uint64_t version) const { return schedule_.LowestNeeded(version); }
  uint64_t UsedNumber(uint64_t version) const { return schedule_.UsedNumber(version); }
  // Returns why the newest checkpoint could not be saved or recorded; empty if it could.
  std::string SaveError(const ShardReports& reports) const;

  void Save(double now, v1::MasterImage* image) const;
  void Restore(const v1::MasterImage& image, double now);

 private:
  const bool synchronous_;
  CheckpointSchedule schedule_;
  CheckpointTracker tracker_;
  StateCollection states_;
  std::optional<CheckpointTracker::Saved> held_;
  bool draining_ = false;
  std::vector<CompleteCheckpoint> complete_;
  std::vector<CompleteCheckpoint> taken_;  // by TakeComplete, and not recorded yet
  std::string record_error_;               // of the last attempt to write a manifest
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_CHECKPOINTS_H_
