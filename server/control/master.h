// The master of a job: keeps track of members, leases and progress, and decides when checkpoints are taken
// and when the job ends.
//
// It answers the calls of proto/master.proto, processes the shards' reports, and determines the command for
// the shards (Command) and the complete checkpoints (TakeCompleteCheckpoints). Its owner must
//   1. forward calls, and call OnShardReport for the answer to every ShardCommand,
//   2. call Tick at least every few hundred milliseconds,
//   3. send Command() to all shards, at once when its generation or checkpoint has changed and about every
//      second otherwise,
//   4. write the manifests of TakeCompleteCheckpoints and call OnCheckpointRecorded for each attempt; when
//      phase() is DONE, STOPPED or FAILED, write the job's other outputs and then call OnOutputsWritten,
//   5. save the weights that an evaluator was asked for (BestWanted, then OnBestKept),
//   6. end when Over() returns true.
// See job_state_machine.h for the states of a job, plan_ledger.h and lease_ledger.h for the assignment of
// samples.
//
// Threads: not thread-safe. It has no locks, threads, files or randomness, and takes the time from `clock`.
// Errors: NotFound for a sender that is not a member; FailedPrecondition for a worker that does not fit the
// job; InvalidArgument for calls that no correct member makes.
#ifndef CATCHMENT_SERVER_CONTROL_MASTER_H_
#define CATCHMENT_SERVER_CONTROL_MASTER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/checkpoint_schedule.h"
#include "server/control/checkpoint_tracker.h"
#include "server/control/data_ledger.h"
#include "server/control/early_stopping.h"
#include "server/control/evaluations.h"
#include "server/control/event_log.h"
#include "server/control/job_state_machine.h"
#include "server/control/membership.h"
#include "server/control/plateau.h"
#include "server/control/progress_meter.h"
#include "server/control/progress_watch.h"
#include "server/control/push_marks.h"
#include "server/control/rosters.h"
#include "server/control/sample_source.h"
#include "server/control/shard_reports.h"
#include "server/control/state_collection.h"
#include "server/control/work_totals.h"

namespace catchment {

// A checkpoint that all shards have saved. Its manifest has not been written yet.
struct CompleteCheckpoint {
  uint64_t number = 0;
  std::vector<v1::SavedShard> shards;  // by index
  v1::MasterState state;
};

class Master {
 public:
  // Creates the master of a job whose defaults are filled in. `resumed` is from the manifest of the
  // checkpoint that the shards have loaded, if any. InvalidArgument if it is damaged. The clock must outlive
  // the master.
  static absl::StatusOr<std::unique_ptr<Master>> Create(v1::Job job, std::vector<TensorSpec> tensors,
                                                        int num_shards, const Clock* clock,
                                                        const std::optional<v1::MasterState>& resumed);

  // Creates a master that continues from the image of another one (Save) of the same job, whose process has
  // ended. The image has passed CheckMasterImage (check_image.h). Members count as heard of now. No
  // incarnation that the other one may have given since is given again: the next one is at least
  // `next_incarnation`. What shards report is not in an image; it comes with their next reports.
  static std::unique_ptr<Master> Restore(v1::Job job, std::vector<TensorSpec> tensors, int num_shards,
                                         const Clock* clock, const v1::MasterImage& image,
                                         uint64_t next_incarnation);
  // Returns an image of the state. Training must have begun.
  v1::MasterImage Save() const;
  // The master's decisions as other processes see them, in addition to the answers to calls. Its owner saves
  // the master when it has changed, before others see it.
  struct Decisions {
    JobStateMachine::State state = JobStateMachine::State::kWaiting;
    uint64_t generation = 0;
    uint64_t checkpoint = 0;
    size_t complete = 0;  // checkpoints
    uint64_t states_for = 0;
    bool stop_requested = false;
    double plateau_factor = 1;
    bool operator==(const Decisions&) const = default;
  };
  Decisions decisions() const;

  // `address`: the network address that the call comes from; empty if it is not known.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request,
                                             const std::string& address = "");
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  // Does the same for an earlier request that was answered with WAIT; it does not renew the worker's
  // heartbeat.
  absl::StatusOr<v1::Lease> GetLeaseAgain(const v1::GetLeaseRequest& request);
  // Returns true if an answer of WAIT may be delayed until LeaseConditions change, because it does not depend
  // on progress that the worker has not reported yet.
  bool MayWaitForLease(const v1::GetLeaseRequest& request) const;
  static constexpr double kLeaseWaitSeconds = 3;
  // The shortest time for which the final evaluation waits for an evaluator that was lost: it pauses for up
  // to 5 seconds between two calls.
  static constexpr double kEvaluatorSeconds = 10;
  // Returns the longest time for which it may be delayed: kLeaseWaitSeconds, or more with many workers, but
  // at most a third of the heartbeat timeout.
  double LongestLeaseWait() const;
  // The conditions that the answers to waiting workers depend on.
  struct LeaseConditions {
    JobStateMachine::State state = JobStateMachine::State::kWaiting;
    bool all_assigned = false;
    bool draining = false;
    uint64_t states_for = 0;    // the checkpoint for which workers save their states
    uint64_t acknowledged = 0;  // the generation, if the answers depend on it
    bool operator==(const LeaseConditions&) const = default;
  };
  LeaseConditions lease_conditions() const;
  // Returns FailedPrecondition if checkpoint `number` does not wait for the state of this worker.
  absl::Status CheckStateIsWanted(uint64_t incarnation, uint64_t number) const;
  // Returns the index of the worker with this incarnation. NotFound if it is not a member.
  absl::StatusOr<uint32_t> IndexOf(uint64_t incarnation) const;
  // Notes whether the worker's state was saved for checkpoint `number`.
  void OnStateSaved(uint64_t incarnation, uint64_t number, const absl::Status& status);
  // Has no effect for a member that has already left.
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  // Returns the number of the newest evaluation with a score; 0: there is none.
  uint64_t newest_evaluation() const { return evaluations_.last().evaluation(); }
  // Returns the score of an evaluation whose weights the evaluator `incarnation` wants to send. NotFound if
  // it is not a member; FailedPrecondition if the weights are not, or no longer, wanted.
  absl::StatusOr<v1::BestState> BestWanted(uint64_t incarnation, uint64_t evaluation);
  // Sets the score of the weights in the file of the best ones, which an earlier run of the job has written.
  // It has no effect on when training ends: that continues from the checkpoint's history.
  void SetKept(const v1::BestState& score) { kept_ = score; }
  // Notes whether the weights of the best evaluation were saved. The final evaluation waits for it.
  void OnBestKept(uint64_t evaluation, const absl::Status& status);
  v1::JobStatus Status() const;
  // A client will poll the status again within `seconds`; keeps the master alive until then.
  void Watch(double seconds);
  // Ends the job in order. If its budget is spent already, this only ends the wait for an evaluation.
  void Stop(const std::string& reason);
  // Ends the job without waiting for its workers and without a last checkpoint.
  void StopNow(const std::string& reason);
  // Ends the job at once, without a last checkpoint.
  void Fail(const std::string& reason);

  // Processes the report of a shard. If its version has fallen, the shard has lost updates, and the job
  // fails.
  absl::Status OnShardReport(const v1::ShardReport& report);
  // Notes that another process has replaced a server before training began.
  void OnServerReplaced(uint32_t index, const std::string& address);
  // Changes the number of workers that training begins with, from that of the job; after `seconds` it begins
  // with those that have registered.
  void ExpectWorkers(int workers, double seconds) {
    state_machine_.ExpectWorkers(workers, clock_->Now() + seconds);
  }
  // Changes the number of evaluators for one of which the final evaluation waits: those that the job had
  // before a loss, or those that are being started for it.
  void ExpectEvaluators(int evaluators) { expected_evaluators_ = evaluators; }
  // Returns the number of evaluators that the job has, has lost or is to have.
  int expected_evaluators() const { return expected_evaluators_; }
  // Adds a line to the events of the job.
  void AddEvent(absl::string_view event) { events_.Add(event); }
  // Extends the timeouts of members by `seconds`, in which the master itself did not run (a suspended
  // machine, SIGSTOP) and could not receive their calls.
  void ExtendDeadlines(double seconds);
  // Removes lost members, and makes the transitions that depend on time.
  void Tick();

  // Returns the command for the shards. `rosters` may be false for shards that have acknowledged
  // generation().
  v1::ShardCommand Command(bool rosters = true) const;
  // Returns the generation of Command().
  uint64_t generation() const { return rosters_.generation(); }
  // Returns the budget, or 0 while it is unknown.
  uint64_t total_samples() const { return total_samples_; }
  // Returns the samples that workers have computed since the master's start.
  uint64_t computed_samples() const { return work_.samples(); }
  uint64_t done_samples() const { return ledger_ == nullptr ? 0 : ledger_->done_samples(); }
  // Returns the checkpoints completed since the previous call, by number.
  std::vector<CompleteCheckpoint> TakeCompleteCheckpoints();
  // Notes whether the manifest of a complete checkpoint was written. A job ends only when its last checkpoint
  // is recorded; if that keeps failing, it ends as FAILED.
  void OnCheckpointRecorded(uint64_t number, const absl::Status& status);
  // Returns the state from which the job is resumed with the weights of a checkpoint; see
  // DataLedger::StateAt.
  v1::MasterState StateAt(const Cut& cut) const;

  v1::JobStatus::Phase phase() const { return state_machine_.phase(); }
  // Returns true if the weights are, or will be, those of a job that was not interrupted by a failure. That
  // is also so if it failed only because its last checkpoint could not be saved.
  bool weights_are_final() const {
    return phase() != v1::JobStatus::FAILED || state_machine_.failed_to_save();
  }
  // Returns true if training has begun in this run.
  bool has_begun() const { return state_machine_.begun(); }
  // Returns true while workers train and while the job is being finished.
  bool training() const { return phase() == v1::JobStatus::TRAINING || phase() == v1::JobStatus::FINISHING; }
  int num_workers() const { return membership_.num_workers(); }
  int num_connected_workers() const { return membership_.num_connected_workers(); }
  uint64_t next_incarnation() const { return membership_.next_incarnation(); }
  // Returns the highest version that a shard has reported.
  uint64_t highest_version() const { return shard_reports_.highest_version(); }
  bool stop_requested() const { return state_machine_.stop_requested(); }
  // Returns true in the phases DONE, STOPPED and FAILED.
  bool ended() const { return state_machine_.ended(); }
  void OnOutputsWritten();
  // Returns true if all workers report that they have done everything that is left. Shards should then report
  // often, because the job ends when they have.
  bool awaits_reports() const;
  // Returns true if the servers must exit.
  bool Over() const { return state_machine_.state() == JobStateMachine::State::kOver; }

  // Returns, for the log, the events since the previous call.
  std::vector<std::string> TakeEvents() { return events_.TakeFresh(); }

 private:
  Master(v1::Job job, std::vector<TensorSpec> tensors, int num_shards, const Clock* clock,
         const v1::MasterState& from);

  void AddOfMember(absl::string_view event) { events_.AddOfMember(event, clock_->Now()); }
  void OpenLedger(uint64_t train_samples);
  double done_epochs() const;  // requires the ledger
  absl::Status CheckFits(const v1::RegisterRequest& request) const;
  // Lets the newcomer wait if its data differs from that of the workers that are there, none of which has
  // samples yet. If those of its kind outnumber these, and are most of the job's workers, these are removed.
  absl::Status CheckAgrees(const v1::RegisterRequest& request, const std::string& origin);
  // Returns how the newcomer's data differs from the job's; empty if it does not, or may decide it.
  std::string DescribeOtherData(const v1::RegisterRequest& request) const;
  // Returns true if only the members decide facts of the job's data, and none was assigned samples.
  bool DataIsOpen() const { return !assigned_ && !draining_ && from_.train_samples() == 0; }
  // Returns the most samples that a shard can have counted of what was assigned.
  uint64_t MostSamples() const;
  // Notes whether the shard has counted more than that.
  void NoteIfOverstated(const v1::ShardReport& report);
  // Notes that the worker has held up the others for `seconds` (ProgressWatch::Bar).
  void Bar(const Member& worker, double seconds, bool vanished = false);
  // Does so for a worker that is lost, if updates had to wait for it.
  void BarIfAwaited(const Member& worker);
  // Returns Unavailable if workers from `origin` were stuck, or vanished, too often, and the job trains
  // without them.
  absl::Status CheckIsNotBarred(const v1::RegisterRequest& request, const std::string& origin) const;
  // Records a worker's progress for the status. InvalidArgument if it is impossible.
  absl::Status Observe(const v1::Progress& progress, Member* member);
  absl::StatusOr<v1::Lease> LeaseFor(const v1::GetLeaseRequest& request, Member* member);
  absl::StatusOr<v1::Lease> NextLease(Member* member);
  // Returns Lease.local_steps of the member's next lease.
  uint32_t LocalStepsOf(const Member& member) const;
  // Returns the steps per second of a worker without its exchanges, at most as many as servers have answered;
  // 0: unknown.
  double SpeedOf(const Member& worker) const;
  // Returns the second highest speed of more than two workers, so that a single one does not decide how the
  // others work, otherwise the highest; 0: unknown.
  double HighSpeed(absl::FunctionRef<double(const Member&)> speed_of) const;
  // Returns ShardCommand.step_seconds.
  double FastestStepSeconds() const;
  // Returns the interval between two calls of one kind by a worker: `seconds`, or more with many workers, to
  // limit the rate of calls to the master.
  double Spread(double seconds) const;
  // Returns the answer that there is no lease yet.
  v1::Lease Wait(double retry_seconds) const;
  // Asynchronous mode: returns true for a worker that joined while others trained, until servers have
  // answered a contribution of it: neither updates nor the learning rate count it before.
  bool IsOnProbation(const Member& worker) const;
  bool Acknowledged(uint64_t version, uint64_t incarnation) const;
  // Synchronous mode: returns true if updates from `version` on may be granted while a checkpoint is
  // announced.
  bool CheckpointIsKnown(uint64_t version) const;
  uint64_t VersionsPerPlan() const;
  uint64_t PushesOf(const Member& worker) const;
  // Returns the clock offset that gives a worker with `pushes` pushes the clock of the slowest worker that
  // has work.
  uint64_t ClockForJoiner(uint64_t pushes) const;
  std::vector<Rosters::Entry> RosterEntries() const;
  // Returns InvalidArgument for a score that no test set of the job can have.
  absl::Status CheckScore(const v1::EvaluationReport& report, const Member& evaluator) const;
  void FollowPlateau();
  void RecordScore(const Member& evaluator);
  bool IsWanted(const v1::BestState& score) const;
  // `source`: of the last score, as the end of a sentence.
  void EndIfEnough(absl::string_view source);

  void Remove(const v1::LeaveRequest& request);
  // Returns true if the process of a worker that has left must not end yet.
  bool MustStay(uint64_t incarnation) const;
  // Removes the worker from the rosters. Its samples are assigned to others when all shards have reported how
  // many of its contributions they have (SettleLeaving).
  void Release(const Member& worker);
  // Removes the worker if it has stated more steps to a server than it was assigned.
  void RemoveIfOverstated(const v1::PushMark& mark, uint32_t server);
  // Counts the steps that the shards have settled as trained, and reassigns the others of workers that have
  // left.
  void ApplyMarks(const v1::ShardReport& report);
  void SettleLeaving();
  // Notes which workers have lost their connection to the shard.
  void TakeDisconnected(const v1::ShardReport& report);
  bool HasDoneAll(const Member& worker) const;
  // About once a second, logs which workers make no progress and removes members that are stuck.
  void WatchProgress();
  void WatchWorkers();
  // Removes evaluators that are stuck: they neither ask for an evaluation nor score one.
  void WatchEvaluators();
  ProgressWatch::Work WorkOf(const Member& worker) const;
  // Asynchronous mode: returns true if others may have to wait for the worker's clock, although it has no
  // lease to work on, until it asks for the next one.
  bool HoldsClock(const Member& worker) const;
  // Returns the time for which workers that must leave may push nothing: the time of a few steps, or of a
  // block over a slow network.
  double LeavePatience() const;
  // Removes all workers.
  void RemoveWorkers(absl::string_view why);
  // Sets the names of the classes, and removes evaluators with others.
  void SetClassNames(uint64_t names);
  // Returns true if a job that is being stopped may announce the checkpoint with the states of its workers.
  // In synchronous mode the version after all granted updates is known in advance; otherwise all workers must
  // have pushed everything.
  bool IsAtRest() const;
  // Returns true if a job that is being stopped waits for the checkpoint with the states of its workers.
  bool Drains() const;
  bool HasPushedAll(const Member& worker) const;
  void AnnounceCheckpoint();
  // Requests the states of the workers that train for the checkpoint.
  void BeginStates(const CheckpointSchedule::Announced& checkpoint);
  void OnSavedByAll(const CheckpointTracker::Saved& saved);
  // Completes the checkpoint that waits for workers' states if all of them are saved.
  void MaybeComplete();
  void CheckForNonFinite(const v1::ShardReport& report);
  // Returns why the newest checkpoint could not be saved or recorded; empty if it could.
  std::string SaveError() const;
  void Advance();
  JobStateMachine::Facts GatherFacts() const;
  void OnStateEntered();

  void FillProgress(v1::JobStatus* status) const;
  void FillBest(v1::JobStatus* status) const;
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
  uint64_t data_checksum_ = 0;                  // of the first worker; 0: unknown
  bool overstated_ = false;                     // workers have stated more samples than they were assigned
  uint64_t class_names_ = from_.class_names();  // RegisterRequest.class_names of the workers; 0: none
  // A worker's statement of its data.
  struct Statement {
    uint64_t train_samples = 0, class_names = 0;
    bool operator==(const Statement&) const = default;
  };
  std::map<std::string, Statement> waiting_;  // by process, of workers that wait because theirs differs
  bool assigned_ = false;                     // samples, to any worker of this run
  uint64_t total_samples_ = 0;
  JobStateMachine state_machine_;
  ShardReports shard_reports_;
  CheckpointSchedule schedule_;
  uint64_t granted_;  // synchronous mode: the version after all updates that workers were granted
  CheckpointTracker checkpoints_;
  StateCollection states_;
  std::optional<CheckpointTracker::Saved> held_;  // a checkpoint that waits for workers' states
  bool draining_ = false;  // a stop was requested of a job whose checkpoints have workers' states
  std::vector<CompleteCheckpoint> complete_;
  std::vector<CompleteCheckpoint> taken_;  // by TakeCompleteCheckpoints, and not recorded yet
  std::string record_error_;               // of the last attempt to write a manifest
  Evaluations evaluations_;
  double longest_evaluation_ = 0;   // seconds
  int expected_evaluators_ = 0;     // present ones, lost ones that may come back, and those to come
  std::optional<Plateau> plateau_;  // with schedule PLATEAU only
  EarlyStopping early_stopping_;
  v1::BestState kept_;              // the score of the weights in the file; no evaluation: there is none
  v1::BestState best_wanted_;       // the score of the weights that are to replace them; no evaluation: none
  uint64_t best_awaited_from_ = 0;  // incarnation of the evaluator that was asked for them; 0: none
  ProgressMeter meter_;
  WorkTotals work_;
  PushMarks marks_;
  ProgressWatch watch_;
  double watched_at_ = 0;
  std::set<uint64_t> no_progress_logged_;  // incarnations
  // Former workers, until all shards have acknowledged the rosters without them and have settled the
  // contributions that they had accepted from them.
  struct Leaving {
    Member worker;
    uint64_t generation = 0;  // of the rosters without it
  };
  std::vector<Leaving> leaving_;
  uint64_t repeated_samples_ = 0;  // computed again although some blocks already include them
  double watched_until_ = 0;
  // Incarnations of workers that have left, and whose processes stay until the last checkpoint is recorded;
  // of each, whether it knows that the weights are final.
  std::map<uint64_t, bool> staying_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_MASTER_H_
