// The master of a job: who takes part, who works on which samples, how far the job is, and when it ends.
//
// It answers the calls of proto/master.proto, takes the shards' reports, and says what every shard is to know
// (Command) and which checkpoints are whole (TakeCompleteCheckpoints). Whoever drives it
//   1. passes calls on, and OnShardReport for the answer to every ShardCommand,
//   2. calls Tick at least every few hundred milliseconds,
//   3. sends Command() to all shards, at once when its generation or checkpoint has changed and about every
//      second otherwise,
//   4. writes the manifests of TakeCompleteCheckpoints and calls OnCheckpointRecorded for each attempt; once
//      phase() is DONE, STOPPED or FAILED writes the job's other outputs, then calls OnOutputsWritten,
//   5. keeps the weights that an evaluator was asked for (BestWanted, then OnBestKept),
//   6. ends when Over().
// The course of a job is told in course.h; how samples are dealt in plan_ledger.h and lease_ledger.h.
//
// Threads: not thread-safe; it has no lock, thread, clock, file or randomness of its own.
// Errors: NotFound for who is no member; FailedPrecondition for a worker that does not fit the job;
// InvalidArgument for calls that no member makes.
#ifndef CATCHMENT_SERVER_MASTER_MASTER_H_
#define CATCHMENT_SERVER_MASTER_MASTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/wire.pb.h"
#include "server/master/budget.h"
#include "server/master/checkpoint_schedule.h"
#include "server/master/checkpoint_tracker.h"
#include "server/master/course.h"
#include "server/master/data_ledger.h"
#include "server/master/early_stopping.h"
#include "server/master/evaluations.h"
#include "server/master/event_log.h"
#include "server/master/membership.h"
#include "server/master/plateau.h"
#include "server/master/progress_meter.h"
#include "server/master/progress_watch.h"
#include "server/master/push_marks.h"
#include "server/master/rosters.h"
#include "server/master/shard_board.h"
#include "server/master/state_collection.h"
#include "server/master/work_totals.h"

namespace catchment {

// Saved by all shards; its manifest is still to be written.
struct CompleteCheckpoint {
  uint64_t number = 0;
  std::vector<v1::SavedShard> shards;  // by index
  v1::MasterState state;
};

class Master {
 public:
  // The job has its defaults filled in. `resumed`: from the manifest of the checkpoint that the shards have
  // loaded. InvalidArgument when it is damaged. The clock must outlive the master.
  static absl::StatusOr<std::unique_ptr<Master>> Create(v1::Job job, std::vector<TensorSpec> tensors,
                                                        int num_shards, const Clock* clock,
                                                        std::optional<v1::MasterState> resumed);

  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request);
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  // The same for a request that was answered with WAIT and is looked at again: nothing was heard of the worker.
  absl::StatusOr<v1::Lease> GetLeaseAgain(const v1::GetLeaseRequest& request);
  // Whether an answer of WAIT may be held back until LeaseConditions change: it does not depend on progress that
  // the worker has yet to report.
  bool MayWaitForLease(const v1::GetLeaseRequest& request) const;
  // How long it may be held back at most: kLeaseWaitSeconds, longer with many workers, and no longer than a third
  // of a worker's lease.
  static constexpr double kLeaseWaitSeconds = 3;
  double LongestLeaseWait() const;
  // What the answers to workers that may wait depend on.
  struct LeaseConditions {
    Course::Stage stage = Course::Stage::kWaiting;
    bool all_dealt = false;
    bool draining = false;
    uint64_t states_for = 0;    // the checkpoint that workers save their states for
    uint64_t acknowledged = 0;  // generation, where they depend on it
    bool operator==(const LeaseConditions&) const = default;
  };
  LeaseConditions lease_conditions() const;
  // Returns FailedPrecondition where checkpoint `number` does not wait for the state of this worker.
  absl::Status CheckStateIsWanted(uint64_t incarnation, uint64_t number) const;
  // The worker's own state is saved for checkpoint `number`, or why it is not.
  void OnStateSaved(uint64_t incarnation, uint64_t number, const absl::Status& status);
  // Of a member that has left already: no harm.
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  // What is known of an evaluation whose weights come from the evaluator `incarnation`. NotFound where that
  // is no member; FailedPrecondition where the weights are not, or no longer, wanted.
  absl::StatusOr<v1::BestState> BestWanted(uint64_t incarnation, uint64_t evaluation);
  // Those of the best evaluation are kept, or why they are not. The last evaluation waits for it.
  void OnBestKept(uint64_t evaluation, const absl::Status& status);
  v1::JobStatus Status() const;
  // Somebody is to ask for the status again within so many seconds, and to hear of the job's end.
  void Watch(double seconds);
  // Ends the job in order. Where its budget is done, only the wait for an evaluation is cut short.
  void Stop(const std::string& reason);
  // Ends the job at once, without a last checkpoint.
  void Fail(const std::string& reason);

  // The job fails where a shard's version falls: it has lost updates.
  absl::Status OnShardReport(const v1::ShardReport& report);
  // Another process takes the place of a server before training has begun.
  void OnServerReplaced(uint32_t index, const std::string& address);
  // The master itself did not run for `seconds` (a suspended machine, SIGSTOP): members could not be heard,
  // and are not taken for lost for it.
  void ExtendDeadlines(double seconds);
  // Takes silent members for lost, and goes on where only time was to pass.
  void Tick();

  // Without `rosters` it is for shards that have acknowledged generation().
  v1::ShardCommand Command(bool rosters = true) const;
  // Returns the generation of Command().
  uint64_t generation() const { return rosters_.generation(); }
  // Returns the budget; 0 while it is unknown.
  uint64_t total_samples() const { return total_samples_; }
  uint64_t done_samples() const { return ledger_ == nullptr ? 0 : ledger_->done_samples(); }
  // Each once, by number.
  std::vector<CompleteCheckpoint> TakeCompleteCheckpoints();
  // The manifest of a complete checkpoint is written, or why it could not be: a job ends only with its last
  // checkpoint recorded, or FAILED when that keeps failing.
  void OnCheckpointRecorded(uint64_t number, const absl::Status& status);
  // Returns what a job has to go on from with the weights of a checkpoint; see DataLedger::StateAt.
  v1::MasterState StateAt(const Cut& cut) const;

  v1::JobStatus::Phase phase() const { return course_.phase(); }
  // The job's weights are as good as those of a job that is done, although it may have failed: only its last
  // checkpoint could not be saved.
  bool weights_are_final() const { return phase() != v1::JobStatus::FAILED || course_.failed_to_save(); }
  // Training has begun, now or before, in this run.
  bool has_begun() const { return course_.begun(); }
  // Workers train, or the job is being finished.
  bool training() const { return phase() == v1::JobStatus::TRAINING || phase() == v1::JobStatus::FINISHING; }
  int num_workers() const { return membership_.num_workers(); }
  void OnOutputsWritten();
  // Workers have done all that is left to do, as they say: the sooner shards report, the sooner the job ends.
  bool awaits_reports() const;
  // Servers end.
  bool Over() const { return course_.stage() == Course::Stage::kOver; }

  // For the log: what happened since the call before.
  std::vector<std::string> TakeEvents() { return events_.TakeFresh(); }

 private:
  Master(v1::Job job, std::vector<TensorSpec> tensors, int num_shards, const Clock* clock,
         const v1::MasterState& from);

  void OpenLedger(uint64_t train_samples);
  absl::Status CheckFits(const v1::RegisterRequest& request) const;
  // Takes a worker's account of its work, for the status. InvalidArgument for one that cannot be.
  absl::Status Observe(const v1::Progress& progress, Member* member);
  absl::StatusOr<v1::Lease> LeaseFor(const v1::GetLeaseRequest& request, Member* member);
  absl::StatusOr<v1::Lease> NextLease(Member* member);
  // Returns the seconds between two calls of one kind of a worker: `seconds`, or more, so that all workers together
  // make no more than the master can answer beside its other work.
  double Spread(double seconds) const;
  // Answers that there is nothing yet.
  v1::Lease Wait(double retry_seconds) const;
  bool Acknowledged(uint64_t version, uint64_t incarnation) const;
  // Synchronous mode: whether updates from `version` on may be granted although a checkpoint is announced.
  bool CheckpointIsKnown(uint64_t version) const;
  uint64_t VersionsPerPlan() const;
  uint64_t PushesOf(const Member& worker) const;
  // The clock that puts a worker with so many pushes beside the slowest of those that have work.
  uint64_t ClockBesideSlowest(uint64_t pushes) const;
  std::vector<Rosters::Entry> RosterEntries() const;
  void FollowPlateau();
  void WeighScore();

  void Remove(const v1::LeaveRequest& request);
  // Takes the worker out of the rosters. Its samples go to others once all shards have said how many of its
  // contributions they have (SettleLeaving).
  void Release(const Member& worker);
  // Counts what the shards have settled as trained, and deals the rest of workers that are gone again.
  void TakeMarks(const v1::ShardReport& report);
  void SettleLeaving();
  // Notes which workers have lost their connections to the shard.
  void TakeDisconnected(const v1::ShardReport& report);
  bool HasDoneAll(const Member& worker) const;
  // Says, about once a second, which workers make no progress, and lets those go that are stuck.
  void WatchProgress();
  ProgressWatch::Work WorkOf(const Member& worker) const;
  // Returns for how long workers that are to leave may push nothing: what a step, or a block over a slow network,
  // takes.
  double LeavePatience() const;
  // Tells the end of those who do not leave.
  void DismissWorkers();
  // The job is being stopped: returns whether workers have done what their states are saved after. In
  // synchronous mode the version after all granted updates is known before it is reached; otherwise all must
  // have pushed all.
  bool IsAtRest() const;
  // Returns whether a job that is being stopped waits for the checkpoint with the states of its workers.
  bool Drains() const;
  bool HasPushedAll(const Member& worker) const;
  void AnnounceCheckpoint();
  // The workers that train save their states for the checkpoint.
  void BeginStates(const CheckpointSchedule::Announced& checkpoint);
  void TakeWhole(const CheckpointTracker::Whole& whole);
  // Completes the checkpoint that waits for workers' states, once they are there.
  void MaybeRelease();
  void CheckForNonFinite(const v1::ShardReport& report);
  // Why the newest checkpoint could not be saved or recorded; empty when it could.
  std::string SaveError() const;
  void Advance();
  Course::Facts GatherFacts() const;
  void OnStage();

  void FillProgress(v1::JobStatus* status) const;
  void FillBest(v1::JobStatus* status) const;
  // Of a status that has progress and shards.
  double LearningRateAt(const v1::JobStatus& status) const;
  void FillShards(v1::JobStatus* status) const;
  v1::WorkerStatus StatusOf(const Member& worker) const;

  const v1::Job job_;
  const v1::Job settings_;  // for the status: without the model
  const std::vector<TensorSpec> tensors_;
  const Clock* const clock_;
  const Pace pace_;
  const bool synchronous_;
  const v1::MasterState from_;

  EventLog events_;
  Membership membership_;
  Rosters rosters_;
  std::unique_ptr<DataLedger> ledger_;  // null until the number of training samples is known
  uint64_t train_samples_ = 0;
  uint64_t total_samples_ = 0;
  Course course_;
  ShardBoard board_;
  CheckpointSchedule schedule_;
  uint64_t granted_;  // synchronous mode: the version after all updates that workers were granted
  CheckpointTracker checkpoints_;
  StateCollection states_;
  std::optional<CheckpointTracker::Whole> held_;  // waits for workers' states
  bool draining_ = false;  // a stop was requested of a job whose checkpoints have workers' states
  std::vector<CompleteCheckpoint> complete_;
  std::string record_error_;  // of the last attempt to write a manifest
  Evaluations evaluations_;
  std::optional<Plateau> plateau_;  // where the schedule is one
  EarlyStopping early_stopping_;
  uint64_t best_wanted_ = 0;        // the best evaluation, while its weights are to be kept; 0: none
  uint64_t best_awaited_from_ = 0;  // incarnation of the evaluator that was asked for them; 0: nobody
  ProgressMeter meter_;
  WorkTotals work_;
  PushMarks marks_;
  ProgressWatch watch_;
  double watched_at_ = 0;
  std::set<uint64_t> noticed_;  // incarnations that are said to make no progress
  // Workers that are members no more, until all shards have taken the rosters without them and have settled
  // what they had accepted of them.
  struct Leaving {
    Member worker;
    uint64_t generation = 0;  // of those rosters
  };
  std::vector<Leaving> leaving_;
  uint64_t repeated_samples_ = 0;  // computed again although part of the blocks have them
  double watched_until_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_MASTER_H_
