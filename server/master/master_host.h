// Runs the master (server/master/master.h): forwards calls to it, sends its commands to all shards, and
// writes manifests, metrics and the outputs of the job.
//
// A host serves one run. With a directory for checkpoints, a server that comes back after training had begun ends the
// run: the owner of the host begins another one from the newest complete checkpoint (run_start.h).
#ifndef CATCHMENT_SERVER_MASTER_MASTER_HOST_H_
#define CATCHMENT_SERVER_MASTER_MASTER_HOST_H_

#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "common/clock.h"
#include "common/growing_pause.h"
#include "common/mutex.h"
#include "common/parameter_layout.h"
#include "common/rpc.h"
#include "proto/checkpoint.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.grpc.pb.h"
#include "server/master/best_keeper.h"
#include "server/master/command_schedule.h"
#include "server/master/lease_waiters.h"
#include "server/master/master.h"
#include "server/master/run_start.h"
#include "server/master/shard_commander.h"
#include "server/master/worker_state_store.h"
#include "server/outputs/outputs.h"
#include "server/outputs/progress_log.h"
#include "server/shard/shard_host.h"

namespace catchment {

// Threads: safe. One thread of the host decides on commands, answers waiting calls and writes files; another
// one receives the servers' answers.
class MasterHost {
 public:
  struct Options {
    v1::Job job;
    int num_servers = 1;
    std::vector<std::string> servers;  // --servers; empty: servers may register from any address
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string checkpoint_dir;  // "": no checkpoints are written
    std::string out_dir;         // "": no outputs are written
    uint64_t resumed_checkpoint = 0;
    uint64_t resumed_version = 0;    // the highest version of a shard in that checkpoint
    uint64_t run_id = 0;             // random, never 0
    std::string token_key;           // Run.token_key: random
    bool insecure = false;           // JobStatus.insecure
    uint64_t first_incarnation = 1;  // higher than those of all earlier runs
    v1::RunRecord record;            // of the job's earlier runs
    int evaluators = 0;              // that the final evaluation waits for one of before any has registered
    std::optional<RunLoss> loss;     // that the run recovers from
    // The process continues the run of a master that was lost (Continue).
    struct Restored {
      v1::MasterCopy copy;
      v1::EvaluationReports evaluations;
      uint64_t epoch = 0;  // of shard 0
    };
    std::optional<Restored> restored;

    // Takes from a copy everything that describes the run.
    void Continue(Restored from);
  };

  // Creates the host, and writes the record of the run. `layout`, `local` and `clock` must outlive it. Errors: those
  // of Master::Create, Outputs::Open and WriteRunRecord.
  static absl::StatusOr<std::unique_ptr<MasterHost>> Create(Options options, const ParameterLayout* layout,
                                                            ShardHost* local, const Clock* clock,
                                                            std::optional<v1::MasterState> resumed);
  ~MasterHost();

  // Sets the HOST:PORT on which this server listens. The job does not begin, or continue, before.
  void SetAddress(const std::string& address);
  // Returns the run as a master at `address` describes it to servers.
  v1::Run RunAt(const std::string& address) const;

  // The calls of the master's service.
  absl::StatusOr<v1::GetJobReply> GetJob();
  absl::StatusOr<v1::RegisterServerReply> RegisterServer(const v1::RegisterServerRequest& request);
  // `address`: as in Master::Register.
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request,
                                             const std::string& address = "");
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  // Returns the answer at once.
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  // Calls `respond` once with the lease: at once, or, if the request allows waiting, on the host's thread
  // within Master::LongestLeaseWait.
  void AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond);
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  // Returns the key of the members' tokens (common/wire/token.h).
  const std::string& token_key() const { return options_.token_key; }
  // For KeepBest.
  BestKeeper* best_keeper() { return &best_keeper_; }
  // For SaveWorkerState and LoadWorkerState.
  WorkerStateStore* state_store() { return &state_store_; }
  v1::JobStatus GetStatus(const v1::GetStatusRequest& request);
  v1::JobStatus Status();
  void Stop(const std::string& reason, bool now = false);

  // Blocks until the job has ended and all servers have been notified, or until the run has ended because a server
  // was lost (loss). Returns OK, or why the job failed.
  absl::Status Wait();
  // Returns false if that has not happened after `seconds`.
  bool WaitFor(double seconds);

  // Ends the run, because another process has taken its place. Nothing is written any more.
  void OnReplaced(const absl::Status& status);

  // Calls `then` with true when the standby, if there is one, has everything that calls before this one have changed:
  // their answers may leave. With false if the run ends before.
  using Then = std::function<void(bool committed)>;
  void AfterCommit(Then then);

  // Returns why the job must go back to a checkpoint; nothing if it need not. Call it after Wait.
  std::optional<RunLoss> loss();
  // Returns the record of the run.
  v1::RunRecord record();

  // Returns true while workers train and while the job is being finished.
  bool training();

 private:
  struct Peer {
    std::string address;
    uint64_t instance = 0;  // RegisterServerRequest.server_instance
    std::unique_ptr<v1::ShardService::Stub> stub;
    double last_heard = 0;
    bool gone = false;    // the process that had the job's shard has ended
    std::string failure;  // why the last process that has registered no more has ended
    // With Faults.standby: of the shard (ShardCommand.Standby.epoch), and of the last process that was asked to restore
    // it.
    uint64_t epoch = 1;
    uint64_t offered_epoch = 1;
  };

  MasterHost(Options options, const ParameterLayout* layout, ShardHost* local, const Clock* clock,
             std::unique_ptr<Master> master, std::unique_ptr<Outputs> outputs,
             std::optional<v1::BestState> kept);

  struct Command {
    int shard = 0;
    v1::ShardService::Stub* stub = nullptr;  // null: the local shard
    v1::ShardCommand command;
    double answer_seconds = 0;
  };

  // Calls `then` when change `change` of the log is acknowledged, or never will be. Not to be called with the lock.
  void CallWhenCommitted(uint64_t change, const Then& then);
  // Does so for those that wait for an image that is in the log now, or at the end of the run.
  void CallDeferred();
  // Appends an image to the log if the state has changed and another image is due.
  void AppendImage() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool ImageIsDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void NotifyWhenCommitted(uint64_t change) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Commands that are sent when the standby has what they tell the servers.
  struct HeldCommands {
    uint64_t change = 0;
    std::vector<Command> commands;
  };

  // --- The master's standby (master_host_standby.cc).

  // Takes over the state of a master that was lost.
  void TakeOver(const Options::Restored& from) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if answers wait for the standby.
  bool Commits() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes that the state has changed in a way that an answer shows.
  void NoteChange() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does so if the master has decided anything since the last time. Other changes, those in reports of servers and
  // heartbeats, may be lost with the process, because they are reported again.
  void NoteDecisions() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  std::vector<v1::StandbyPart> DescribeState(bool whole);
  v1::MasterCopy Copy() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the standby of this server, which it must know before commands, because these wait for it. Nothing if there
  // is none, or if not all servers have registered.
  std::optional<v1::ShardCommand::Standby> StandbyOfMaster() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Hold(std::vector<Command> commands) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the commands that may be sent.
  std::vector<Command> TakeCommitted() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasCommitted() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  void Run();
  // Does one round of work. `tick` is true if about kRoundSeconds have passed.
  void Round(bool tick);
  // Returns the commands that are due, and marks them as in flight.
  std::vector<Command> TakeDueCommands(const v1::ShardCommand& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if the server is reachable and has not been stopped.
  bool Commandable(size_t server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the next command, without rosters.
  v1::ShardCommand NextCommand() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if there is work that cannot wait for the next tick.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(std::vector<Command> commands);
  void OnAnswer(int shard, const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer);
  void OnReport(int shard, const v1::ShardReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnNoAnswer(int shard, const absl::Status& why, bool stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Handles the refusal of a process that belongs to another run, or that is not the one that registered.
  void OnRefused(int shard, const absl::Status& why, bool stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Lease> GetLeaseLocked(const v1::GetLeaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes what the answer shows, and completes it.
  absl::StatusOr<v1::Lease> Noted(absl::StatusOr<v1::Lease> lease) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LeaseWaiters::Ask AskAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Does the rest of a round. `stop` is true if servers are being stopped.
  void FinishRound(bool stop);
  // Ends the host if the servers know that the job has ended.
  void MaybeEnd();
  static void Deliver(std::vector<LeaseWaiters::Answer> answers);
  // Answers all calls that still wait for a lease.
  void AnswerWaiters();
  // Writes the manifests of checkpoints that all shards have saved. The newest one that failed is retried in
  // later rounds.
  void WriteManifests(std::vector<CompleteCheckpoint> checkpoints);
  // Checks that the shards' files can be read, and then writes the manifest, so that a recorded checkpoint
  // can always be resumed from.
  absl::Status RecordCheckpoint(const CompleteCheckpoint& checkpoint) const;
  v1::Manifest MakeManifest(const CompleteCheckpoint& checkpoint) const;
  // Returns true if all servers know that the job has ended, or have had enough time to learn it.
  bool StopIsKnown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteMetrics();
  // Reads the weights of a job that has ended, from the servers or, where one cannot be read, from its last
  // checkpoint.
  absl::Status ReadFinalWeights(const std::vector<std::string>& servers, const v1::JobStatus& job_status,
                                absl::Span<float> weights) const;
  // Writes the weights, metrics and summary of a job that has ended.
  void WriteFinalOutputs();
  BestKeeper::Owner BestKeeperOwner();
  WorkerStateStore::Owner StateStoreOwner();
  void StopLocked(const std::string& reason, bool now = false) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckServer(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRun(const v1::RegisterServerRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes in the record how many evaluators the job has.
  void NoteEvaluators() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckWorker(const v1::RegisterRequest& request) const;
  void Admit(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool HasStandbys() const { return catchment::HasStandbys(options_.job, options_.num_servers); }
  // Returns true if the job has ended without failing, and this process was no part of that.
  bool HasEndedWithout(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns, for people, how the job has ended.
  std::string DescribeEnd() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns true if another process has come for the shard of a server, which it must restore from the standby.
  bool MustRestore(const v1::RegisterServerRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Records that a process has restored the shard of a server.
  void OnRestored(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns the server that keeps the copy of this one's shard.
  size_t StandbyOf(size_t server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return (server + 1) % peers_.size();
  }
  // Returns the server whose shard this one keeps a copy of.
  const Peer& KeptBy(size_t server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
    return peers_[(server + peers_.size() - 1) % peers_.size()];
  }
  void SetStandby(size_t server, v1::ShardCommand* command) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Executes a command of the local shard.
  void CommandLocal(const Command& command);
  // Returns true if the server's shard is not that of this run's beginning.
  bool MustBeginAgain(const v1::RegisterServerRequest& request) const;
  // Ends the run, or without a directory for checkpoints fails the job, because a server was restarted and has lost
  // its shard. Returns the error for that server.
  absl::Status OnRestarted(size_t server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status FailRestarted(size_t server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Notes why a server ends.
  void NoteFailure(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Fails a job that recovers if a server has not come back after connect_timeout_seconds.
  void CheckForMissingServers() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool CanGoBack() const { return !options_.checkpoint_dir.empty(); }
  // Notes a version that the run before had reached.
  void NoteLostVersion(uint64_t version) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Once training has begun again, adds the sentence about the recovery to the events, and counts the updates.
  void ReportRecovery() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void LogEvents() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Writes the record if it has changed; after an error again, later.
  void WriteRecord();
  // Returns true if the record is written, or cannot be written within kRecordSeconds after the end. Without it, a master
  // that is started again would continue the job. Called after StopIsKnown.
  bool RecordIsWritten() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Returns what the user can do when a server's state is lost.
  std::string RecoveryAdvice() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllServersHere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Wakes the host's thread if it has work.
  void WakeIfNeeded() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const ParameterLayout& layout_;
  ShardHost& local_;
  const Clock& clock_;

  Mutex mu_;
  CondVar changed_;
  std::unique_ptr<Master> master_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);  // by shard; the first is this server
  static constexpr size_t kMostDevices = 1000;
  std::set<std::string> devices_ ABSL_GUARDED_BY(mu_);
  CommandSchedule schedule_ ABSL_GUARDED_BY(mu_);
  LeaseWaiters waiters_ ABSL_GUARDED_BY(mu_);
  StandbyLog* const log_;                           // of shard 0 and the master; null: there is no standby
  uint64_t commit_ ABSL_GUARDED_BY(mu_) = 0;        // the last change of the master's state in the log
  Master::Decisions decided_ ABSL_GUARDED_BY(mu_);  // at that time
  bool evaluations_changed_ ABSL_GUARDED_BY(mu_) = false;  // since the state was described
  bool changed_since_image_ ABSL_GUARDED_BY(mu_) = false;  // the state; an image is not in the log yet
  double next_image_ ABSL_GUARDED_BY(mu_) = 0;             // when another image may be made
  std::deque<HeldCommands> held_ ABSL_GUARDED_BY(mu_);
  std::vector<Then> deferred_ ABSL_GUARDED_BY(mu_);  // wait for the next image
  std::set<int> stopped_ ABSL_GUARDED_BY(mu_);       // servers that have answered the stop
  bool answered_ ABSL_GUARDED_BY(mu_) = false;       // a server has answered since the last round
  bool stopped_before_start_ ABSL_GUARDED_BY(mu_) =
      false;                                  // Stop was called before all servers had registered
  bool ending_ ABSL_GUARDED_BY(mu_) = false;  // the host is destroyed
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  std::optional<RunLoss> loss_ ABSL_GUARDED_BY(mu_);           // why the run ended before the job
  const double begun_;                                         // the time of construction
  std::optional<RunLoss> recovers_from_ ABSL_GUARDED_BY(mu_);  // until training has begun again
  v1::RunRecord record_ ABSL_GUARDED_BY(mu_);
  bool record_changed_ ABSL_GUARDED_BY(mu_) = false;
  bool continues_later_ ABSL_GUARDED_BY(mu_) = false;  // a restarted master continues the job that failed
  std::optional<v1::BestState> kept_ ABSL_GUARDED_BY(mu_);  // the score of model-best.safetensors
  // The reports, with batch_norm's statistics, of the newest evaluation and of the one whose weights are
  // saved.
  v1::EvaluationReport newest_report_ ABSL_GUARDED_BY(mu_);
  v1::EvaluationReport best_report_ ABSL_GUARDED_BY(mu_);
  bool scored_ ABSL_GUARDED_BY(mu_) = false;  // an evaluation has been reported since metrics were written

  // Used by the host's thread; WriteBest is called on the keeper's.
  const std::unique_ptr<Outputs> outputs_;
  BestKeeper best_keeper_;
  WorkerStateStore state_store_;

  // Used by the host's thread.
  ProgressLog progress_log_;
  bool outputs_written_ = false;
  std::optional<CompleteCheckpoint> unrecorded_;  // a checkpoint whose manifest could not be written
  double record_at_ = 0;                          // time of the next attempt
  GrowingPause record_pauses_;
  double write_record_at_ = 0;  // time of the next attempt to write the record of the job
  GrowingPause write_pauses_;
  std::optional<double> stop_since_;
  std::unique_ptr<ShardCommander> commander_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_MASTER_HOST_H_
