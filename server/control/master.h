// The master of a job. It connects the parts that decide, each of which owns its state: JobStateMachine on
// the state of the job, JobMembers on who may join and who is stuck, JobLeases on the assignment of samples,
// JobCheckpoints and JobEvaluation. What one part has decided the master passes on to the others.
//
// It answers the calls of proto/master.proto, processes the shards' reports, and determines the command for
// the shards (Command) and the complete checkpoints (JobCheckpoints::TakeComplete). Its owner must
//   1. forward calls, and call OnShardReport for the answer to every ShardCommand,
//   2. call Tick at least every few hundred milliseconds,
//   3. send Command() to all shards, at once when its generation or checkpoint has changed and about every
//      second otherwise,
//   4. write the manifests of these and call OnCheckpointRecorded for each attempt; when the job has ended,
//      write its other outputs and then call OnOutputsWritten,
//   5. save the weights that an evaluator was asked for (JobEvaluation::BestWanted, then OnBestKept),
//   6. end when state_machine().over() returns true.
//
// Threads: not thread-safe. It has no locks, threads, files or randomness, and takes the time from `clock`.
// Errors: NotFound for a sender that is not a member; FailedPrecondition for a worker that does not fit the
// job; InvalidArgument for calls that no correct member makes.
#ifndef CATCHMENT_SERVER_CONTROL_MASTER_H_
#define CATCHMENT_SERVER_CONTROL_MASTER_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/event_log.h"
#include "server/control/job_checkpoints.h"
#include "server/control/job_evaluation.h"
#include "server/control/job_leases.h"
#include "server/control/job_members.h"
#include "server/control/job_state_machine.h"
#include "server/control/shard_reports.h"

namespace catchment {

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

  const JobStateMachine& state_machine() const { return state_machine_; }
  JobMembers& members() { return members_; }
  const JobMembers& members() const { return members_; }
  const JobLeases& leases() const { return leases_; }
  JobCheckpoints& checkpoints() { return checkpoints_; }
  const JobCheckpoints& checkpoints() const { return checkpoints_; }
  JobEvaluation& evaluation() { return evaluation_; }
  EventLog& events() { return events_; }
  // Returns the highest version that a shard has reported.
  uint64_t highest_version() const { return reports_.highest_version(); }

  // `address`: the network address that the call comes from; empty if it is not known.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request,
                                             const std::string& address = "");
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  // Does the same for an earlier request that was answered with WAIT; it does not renew the worker's
  // heartbeat.
  absl::StatusOr<v1::Lease> GetLeaseAgain(const v1::GetLeaseRequest& request);
  // Has no effect for a member that has already left.
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  // Notes whether the worker's state was saved for checkpoint `number`.
  void OnStateSaved(uint64_t incarnation, uint64_t number, const absl::Status& status);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  // Notes whether the weights of the best evaluation were saved. The final evaluation waits for it.
  void OnBestKept(uint64_t evaluation, const absl::Status& status);
  v1::JobStatus Status() const;
  // A client will poll the status again within `seconds`; keeps the master alive until then.
  void Watch(double seconds);
  // Ends the job in order. If its budget is spent already, this only ends the wait for an evaluation. `now`:
  // without waiting for its workers and without a last checkpoint.
  void Stop(const std::string& reason, bool now = false);
  // Ends the job at once, without a last checkpoint.
  void Fail(const std::string& reason);

  // Processes the report of a shard. If its version has fallen, the shard has lost updates, and the job
  // fails.
  absl::Status OnShardReport(const v1::ShardReport& report);
  // Notes that another process has replaced a server before training began.
  void OnServerReplaced(uint32_t index, const std::string& address);
  // Changes the number of workers that training begins with, from that of the job; after `seconds` it begins
  // with those that have registered.
  void ExpectWorkers(int workers, double seconds);
  // Removes lost members, and makes the transitions that depend on time.
  void Tick();

  // Returns the command for the shards. `rosters` may be false for shards that have acknowledged its
  // generation (JobLeases::generation).
  v1::ShardCommand Command(bool rosters = true) const;
  // Notes whether the manifest of a complete checkpoint was written. A job ends only when its last checkpoint
  // is recorded; if that keeps failing, it ends as FAILED.
  void OnCheckpointRecorded(uint64_t number, const absl::Status& status);
  // Returns the state from which the job is resumed with the weights of a checkpoint; see
  // DataLedger::StateAt.
  v1::MasterState StateAt(const Cut& cut) const;
  void OnOutputsWritten();

 private:
  Master(v1::Job job, std::vector<TensorSpec> tensors, int num_shards, const Clock* clock,
         const v1::MasterState& from);

  // Makes the transitions whose conditions are met, and announces a checkpoint if one is due.
  void Advance();
  JobStateMachine::Facts GatherFacts() const;
  void OnStateEntered();
  // Removes the worker, whose samples are then assigned to others. `why`: if it is considered lost for a
  // reason that is not logged yet.
  void Release(const Member& worker, absl::string_view why = "");
  // Completes the checkpoint that waits for workers' states if all of them are saved.
  void MaybeComplete();

  const v1::Job job_;
  const v1::Job settings_;  // for the status: without the model
  const std::vector<TensorSpec> tensors_;
  const Clock* const clock_;
  const v1::MasterState from_;

  EventLog events_;
  JobStateMachine state_machine_;
  ShardReports reports_;
  JobMembers members_;
  JobCheckpoints checkpoints_;
  JobLeases leases_;
  JobEvaluation evaluation_;
  double watched_until_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_MASTER_H_
