// The samples of a job: assigns them to workers in leases, and counts those that all shards have settled as
// trained, each exactly once. It keeps the ledger of samples, the rosters in which the shards know the
// workers, the steps that shards have answered and settled, and the workers that have left with samples.
// See plan_ledger.h and lease_ledger.h for the assignment of samples.
//
// Threads: not thread-safe. Errors: InvalidArgument for requests that no correct worker makes.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_LEASES_H_
#define CATCHMENT_SERVER_CONTROL_JOB_LEASES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/algorithm_facts.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/data_ledger.h"
#include "server/control/event_log.h"
#include "server/control/job_checkpoints.h"
#include "server/control/job_members.h"
#include "server/control/job_progress.h"
#include "server/control/job_state_machine.h"
#include "server/control/membership.h"
#include "server/control/push_marks.h"
#include "server/control/rosters.h"
#include "server/control/shard_reports.h"

namespace catchment {

class JobLeases {
 public:
  // All references and pointers must outlive this object. `from`: of a resumed job, otherwise empty.
  JobLeases(const v1::Job& job, int num_shards, const v1::MasterState& from,
            const JobStateMachine& state_machine, const JobMembers& members,
            const JobCheckpoints& checkpoints, const ShardReports& reports, EventLog* events);

  // Creates the ledger of the job, because its number of training samples is known now, or is another one.
  void Open(uint64_t train_samples);
  bool is_open() const { return ledger_ != nullptr; }  // Open was called
  // Returns true if only the members decide facts of the job's data, and none was assigned samples.
  bool DataIsOpen() const;
  // Stops assigning samples, because the job is being stopped.
  void Close() { ledger_->Close(); }
  // Returns the budget, or 0 while it is unknown.
  uint64_t total_samples() const { return total_samples_; }
  uint64_t done_samples() const { return is_open() ? ledger_->done_samples() : 0; }
  double done_epochs() const;  // requires the ledger
  bool AllDone() const { return is_open() && ledger_->AllDone(); }

  // Asynchronous mode: adds a worker that has registered to the roster.
  void Join(const Member& worker);
  // Returns the worker's lease after `request.after()`, FINISHED, or WAIT. It may be called again for a
  // request that was answered with WAIT.
  absl::StatusOr<v1::Lease> LeaseFor(const v1::GetLeaseRequest& request, Member* worker);
  // Returns true if an answer of WAIT may be delayed until conditions() change, because it does not depend on
  // progress that the worker has not reported yet.
  bool MayWait(const v1::GetLeaseRequest& request) const;
  // The conditions that the answers to waiting workers depend on.
  struct Conditions {
    JobStateMachine::State state = JobStateMachine::State::kWaiting;
    bool all_assigned = false;
    bool draining = false;
    uint64_t states_for = 0;    // the checkpoint for which workers save their states
    uint64_t acknowledged = 0;  // the generation, if the answers depend on it
    bool operator==(const Conditions&) const = default;
  };
  Conditions conditions() const;
  // Returns true if all workers report that they have done everything that is left. Shards should then report
  // often, because the job ends when they have.
  bool AwaitsReports() const;

  // Removes a former worker from the rosters. Its samples are assigned to others when all shards have
  // reported how many of its contributions they have. Release and MarkDone return the indices of former
  // workers about which no shard can report any more.
  [[nodiscard]] std::vector<uint32_t> Release(const Member& worker);
  // Takes the marks of a report; the changes are for MarkDone.
  std::vector<PushMarks::Change> Update(const v1::ShardReport& report) { return marks_.Update(report); }
  // Counts the steps that the shards have settled as trained, and assigns the others of workers that have
  // left again.
  [[nodiscard]] std::vector<uint32_t> MarkDone(const std::vector<PushMarks::Change>& changes);
  // Notes whether the shard has counted more samples than were assigned.
  void NoteIfOverstated(const v1::ShardReport& report);
  // Forgets the marks of a shard whose process was replaced.
  void ForgetMarks(uint32_t shard) { marks_.Forget(shard); }

  // Asynchronous mode: returns true for a worker that joined while others trained, until servers have
  // answered a contribution of it: neither updates nor the learning rate count it before.
  bool IsOnProbation(const Member& worker) const;
  ProgressWatch::Work WorkOf(const Member& worker) const;

  // Returns the facts on which the announcement of a checkpoint depends.
  CheckpointSchedule::Facts CheckpointFacts(double now) const;
  // Returns the workers (index by incarnation) that train for the last checkpoint that was announced.
  std::map<uint64_t, uint32_t> Participants() const;
  // Notes that a checkpoint was announced, or that none is awaited (DataLedger::AwaitCheckpoint).
  void AwaitCheckpoint(bool awaited);
  // Frees what is needed only for checkpoints at versions that all shards have passed.
  void ForgetPassed();
  // Synchronous mode: returns the version after all updates that workers were granted.
  uint64_t granted() const { return granted_; }
  // Returns the part of the state from which the job is resumed with the weights of a checkpoint.
  v1::MasterState StateAt(const Cut& cut) const;

  // Returns the generation of the shards' command, and makes a new one (Rosters).
  uint64_t generation() const { return rosters_.generation(); }
  void RenewGeneration() { rosters_.Renew(); }
  void Fill(bool rosters, v1::ShardCommand* command) const;
  void Fill(v1::JobStatus* status) const;
  void Save(v1::MasterImage* image) const;
  void Restore(const v1::MasterImage& image, double now);

 private:
  // Former workers, until all shards have acknowledged the rosters without them and have settled the
  // contributions that they had accepted from them.
  struct Leaving {
    Member worker;
    uint64_t generation = 0;  // of the rosters without it
  };

  absl::StatusOr<v1::Lease> Next(Member* worker);
  // Returns true if all shards know the worker in the roster of the version and, in synchronous mode, the
  // checkpoint that was announced, unless it is beyond the updates that would be granted.
  bool MayGrant(uint64_t version, uint64_t incarnation) const;
  // Returns the clock offset that gives a worker with `pushes` pushes the clock of the slowest worker that
  // has work.
  uint64_t ClockForJoiner(uint64_t pushes) const;
  PushMarks::Mark MarkOf(const Member& worker) const { return marks_.Of(worker.index, worker.incarnation); }
  // Returns the most samples that a shard can have counted of what was assigned.
  uint64_t MostSamples() const;
  std::vector<uint32_t> SettleLeaving();

  const v1::Job& job_;
  const v1::MasterState& from_;
  const JobStateMachine& state_machine_;
  const Membership& members_;
  const JobProgress& progress_;
  const JobCheckpoints& checkpoints_;
  const ShardReports& reports_;
  EventLog* const events_;
  const Pace pace_;
  const bool synchronous_;
  const uint64_t versions_per_plan_;

  std::unique_ptr<DataLedger> ledger_;  // null until the number of training samples is known
  uint64_t total_samples_ = 0;
  double samples_per_epoch_ = 0;
  Rosters rosters_;
  PushMarks marks_;
  uint64_t granted_;
  bool assigned_ = false;    // samples, to any worker of this run
  bool overstated_ = false;  // workers have stated more samples than they were assigned
  std::vector<Leaving> leaving_;
  uint64_t repeated_samples_;  // computed again although some blocks already include them
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_LEASES_H_
