// The control plane of a job: a pure object that turns calls, answers of servers and time into effects
// (effects.h).
//
// It puts together the Master, which decides on the job; JobServers, which knows the processes that hold the
// shards; LeaseWaiters, the calls that wait for work; ImageGate, which holds back what the master's standby
// does not have yet; and JobHistory, the record that outlives the process. Its owner
//   1. forwards calls, and sends the replies that may leave,
//   2. after each call appends the image that TakeImage asks for, and calls Step if HasWork returns true,
//   3. calls Step at NextStep, or before, and carries the effects out,
//   4. calls the On... function for the result of each effect,
//   5. ends when over() returns true, after it has carried out the effects of End.
// The real owner is server/host/master_host.h, that of a simulation simulation/simulated_master.h.
//
// Units: seconds. Threads: not thread-safe. It has no locks, threads or files, and time comes from outside.
#ifndef CATCHMENT_SERVER_CONTROL_CONTROL_LOOP_H_
#define CATCHMENT_SERVER_CONTROL_CONTROL_LOOP_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/growing_pause.h"
#include "common/job/parameter_layout.h"
#include "proto/calls.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/standby.pb.h"
#include "proto/wire.pb.h"
#include "server/control/calls.h"
#include "server/control/effects.h"
#include "server/control/image_gate.h"
#include "server/control/job_history.h"
#include "server/control/job_servers.h"
#include "server/control/lease_waiters.h"
#include "server/control/master.h"
#include "server/control/run_options.h"

namespace catchment {

class ControlLoop {
 public:
  struct Options {
    RunOptions run;
    std::vector<TensorSpec> tensors;
    bool can_go_back = false;                // there is a directory for checkpoints
    bool writes_weights = false;             // there is a directory for outputs
    bool has_standby = false;                // images of the state are sent to a standby
    std::optional<v1::MasterState> resumed;  // of the checkpoint
    std::optional<v1::BestState> kept;       // the score of weights that an earlier run has kept
    std::function<uint64_t()> own_version;   // returns the version of shard 0
    std::vector<uint64_t> parameters;        // of each server's shard
  };
  // `clock` outlives the loop. Errors: those of Master::Create.
  static absl::StatusOr<std::unique_ptr<ControlLoop>> Create(Options options, const Clock* clock);

  const RunOptions& run() const { return options_.run; }
  const Master& master() const { return *master_; }
  const v1::RunRecord& record() const { return history_.record(); }
  // Sets the address of server 0. The job does not begin, or continue, before.
  void SetAddress(const std::string& address) { servers_.SetAddress(address); }

  // Answers a call. Returns the replies that may leave: that to this call, or to an older one of the same
  // worker that has waited for a lease. Others wait for a lease or for the standby, and leave with the
  // effects of a step or with TakeReplies. Errors: those of Master; Unavailable if the run ends before the
  // standby has what the reply shows. The owner answers LoadWorkerState, and SaveWorkerState before the loop.
  std::vector<ReadyReply> Answer(const v1::Call& call, Respond respond);
  v1::JobStatus Status() const;
  // As that of Master.
  absl::StatusOr<v1::BestState> BestWanted(uint64_t incarnation, uint64_t evaluation) {
    return master_->evaluation().BestWanted(incarnation, evaluation);
  }

  // --- The standby.
  // Returns the number of an image that must be taken now; nothing if none is due.
  std::optional<uint64_t> TakeImage();
  // Describes the state for an image: what has changed since the last one, or with `whole` all.
  std::vector<v1::StandbyPart> DescribeState(bool whole);
  void OnImageCommitted(uint64_t image) { gate_.OnCommitted(image); }
  // The standby will acknowledge nothing more.
  void OnImagesLost() { images_lost_ = true; }
  // Returns the replies that may leave, if all that is to be carried out is these.
  std::vector<ReadyReply> TakeReplies();

  // --- Time.
  // `waited`: the owner has waited until NextStep.
  Effects Step(bool waited);
  // Returns true if Step has work that cannot wait.
  bool HasWork() const;
  // Returns when Step must be called even without work.
  double NextStep() const;
  // The owner did not run for `seconds`, in which it could not receive calls. Returns true if that is long.
  bool OnPause(double seconds);
  // Ends the run: returns the replies to all calls that still wait.
  Effects End();

  // --- Results of effects.
  void OnAnswer(int server, const v1::ShardCommand& command, const absl::StatusOr<v1::ShardReport>& answer);
  void OnCheckpointWritten(CompleteCheckpoint checkpoint, const absl::Status& status);
  // Returns the seconds until the next attempt.
  double OnRecordWritten(const absl::Status& status) { return history_.OnWritten(status, clock_.Now()); }
  void OnOutputsWritten(const absl::Status& status);
  void OnStateSaved(uint64_t incarnation, uint64_t checkpoint, const absl::Status& status);
  // Returns the statistics of batch_norm of an evaluation whose weights are written; empty if they are not
  // known.
  std::vector<v1::Statistic> BestStatistics(uint64_t evaluation) const;
  void OnBestKept(const v1::BestState& score, const absl::Status& status);

  // --- The end.
  bool over() const { return over_ || servers_.loss().has_value(); }
  // Returns OK, or why the job failed.
  const absl::Status& result() const { return result_; }
  // Returns why the job must go back to a checkpoint; nothing if it need not.
  const std::optional<RunLoss>& loss() const { return servers_.loss(); }
  // Returns the number of members that do not know yet that the job is done, because the run had nothing to
  // do and did not wait for them.
  int MembersToTell() const;
  // Ends the run, because another process has taken the place of this one.
  void OnReplaced(const absl::Status& status);

 private:
  ControlLoop(Options options, std::unique_ptr<Master> master, const Clock* clock);

  // Continues with the state of a master that was lost.
  void TakeOver(const RunOptions::Restored& from);
  // Makes the reply to a call: for each kind of request there is one definition in control_loop_calls.cc.
  template <v1::Call::RequestCase kRequest>
  absl::StatusOr<v1::Reply> ReplyTo(const v1::Call& call);
  // Does so if the request is one of these kinds.
  template <v1::Call::RequestCase... kRequests>
  absl::StatusOr<v1::Reply> ReplyToAny(const v1::Call& call);
  absl::Status CheckWorker(const v1::RegisterRequest& request) const;
  void Stop(const std::string& reason, bool now);
  // Returns true if the call waits for a lease, and was answered with WAIT.
  bool MayWait(const v1::GetLeaseRequest& request, const v1::Lease& lease) const;
  // Adds a reply to `ready` when the standby has what it shows: at once, or later to `replies_`.
  void Release(ReadyReply reply, std::vector<ReadyReply>* ready);
  // Notes what the answer shows, and completes it.
  absl::StatusOr<v1::Lease> Commit(absl::StatusOr<v1::Lease> lease);
  LeaseWaiters::Ask RetryLease();
  // Returns true if replies wait for the standby.
  bool Commits() const;
  bool IsReleased(uint64_t image) const { return !Commits() || gate_.IsCommitted(image); }
  void NoteChange();
  // Notes a change if the master has decided anything since the last time. Other changes, those in reports of
  // servers and heartbeats, may be lost with the process, because they are reported again.
  void NoteDecisions();
  // Returns the next command to servers, without rosters and the run, which HasWork does not need.
  v1::ShardCommand WantedCommand() const;
  bool MayCommand(const v1::ShardCommand& command) const;
  bool OutputsAreDue() const { return !outputs_begun_ && master_->state_machine().ended(); }
  std::vector<CompleteCheckpoint> TakeCheckpoints();
  FinalOutputs MakeFinalOutputs();
  // Ends the run if the servers know that the job has ended.
  void MaybeEnd();

  static constexpr size_t kMaxDevices = 1000;

  const Options options_;
  const Clock& clock_;
  const std::unique_ptr<Master> master_;
  JobHistory history_;
  JobServers servers_;
  LeaseWaiters waiters_;
  ImageGate gate_;
  Master::Decisions decided_;         // at the last change
  bool evaluations_changed_ = false;  // since the state was described
  // Commands and answers that wait for an image, in the order of the images.
  struct HeldCommands {
    uint64_t image = 0;
    std::vector<ServerCommand> commands;
  };
  std::deque<HeldCommands> held_;
  struct HeldReply {
    uint64_t image = 0;
    ReadyReply reply;
  };
  std::deque<HeldReply> replies_;
  std::set<std::string> devices_;
  int registered_ = 0;  // workers and evaluators
  bool images_lost_ = false;
  double tick_at_ = 0;
  bool answered_ = false;              // a server has answered since the last step
  bool stopped_before_start_ = false;  // Stop was called before all servers had registered
  bool outputs_begun_ = false;
  std::optional<double> stop_since_;
  bool told_ = false;                             // all servers know that the job has ended
  std::optional<CompleteCheckpoint> unrecorded_;  // a checkpoint whose manifest could not be written
  double record_at_ = 0;                          // time of the next attempt
  GrowingPause record_pauses_;
  std::optional<v1::BestState> kept_;  // the score of the weights that are kept
  // The reports, with batch_norm's statistics, of the newest evaluation and of the one whose weights are
  // saved.
  v1::EvaluationReport newest_report_;
  v1::EvaluationReport best_report_;
  bool scored_ = false;  // an evaluation has been reported since the last step
  bool over_ = false;
  absl::Status result_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_CONTROL_LOOP_H_
