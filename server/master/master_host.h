// Drives the master (server/master/master.h): passes calls on to it, carries its commands to all shards,
// writes manifests, metrics and what the job leaves behind.
#ifndef CATCHMENT_SERVER_MASTER_MASTER_HOST_H_
#define CATCHMENT_SERVER_MASTER_MASTER_HOST_H_

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
#include "proto/wire.grpc.pb.h"
#include "server/master/best_keeper.h"
#include "server/master/command_schedule.h"
#include "server/master/lease_waiters.h"
#include "server/master/master.h"
#include "server/master/shard_commander.h"
#include "server/master/worker_state_store.h"
#include "server/outputs/outputs.h"
#include "server/shard/shard_host.h"

namespace catchment {

// Threads: safe; it has one of its own that decides on commands, answers calls that waited and writes files, and
// one that takes the servers' answers.
class MasterHost {
 public:
  struct Options {
    v1::Job job;
    int num_servers = 1;
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string checkpoint_dir;  // "": none
    std::string out_dir;         // "": none
    uint64_t resumed_checkpoint = 0;
    uint64_t run_id = 0;             // random, never 0
    uint64_t first_incarnation = 1;  // higher than those of all earlier runs
  };

  // layout, local and clock outlive the host. Errors: those of Master::Create and of the output directory.
  static absl::StatusOr<std::unique_ptr<MasterHost>> Create(Options options, const ParameterLayout* layout,
                                                            ShardHost* local, const Clock* clock,
                                                            std::optional<v1::MasterState> resumed);
  ~MasterHost();

  // HOST:PORT of this server, for workers, once it listens; nothing begins before.
  void SetAddress(const std::string& address);
  // Returns the run, as a master at `address` describes it to servers.
  v1::Run RunAt(const std::string& address) const;

  // Calls of the master's service.
  absl::StatusOr<v1::GetJobReply> GetJob();
  absl::StatusOr<v1::RegisterServerReply> RegisterServer(const v1::RegisterServerRequest& request);
  absl::StatusOr<v1::RegisterReply> Register(const v1::RegisterRequest& request);
  absl::StatusOr<v1::HeartbeatReply> Heartbeat(const v1::HeartbeatRequest& request);
  // Answers at once.
  absl::StatusOr<v1::Lease> GetLease(const v1::GetLeaseRequest& request);
  // Calls `respond` once with the lease: now, or, where the request allows to wait, within
  // Master::LongestLeaseWait, on the host's thread.
  void AwaitLease(const v1::GetLeaseRequest& request, LeaseWaiters::Respond respond);
  v1::LeaveReply Leave(const v1::LeaveRequest& request);
  absl::StatusOr<v1::GetEvaluationReply> GetEvaluation(const v1::GetEvaluationRequest& request);
  absl::StatusOr<v1::ReportEvaluationReply> ReportEvaluation(const v1::EvaluationReport& report);
  // For KeepBest.
  BestKeeper* best_keeper() { return &best_keeper_; }
  // For SaveWorkerState and LoadWorkerState.
  WorkerStateStore* state_store() { return &state_store_; }
  v1::JobStatus GetStatus(const v1::GetStatusRequest& request);
  v1::JobStatus Status();
  void Stop(const std::string& reason);

  // Returns when the job is over and all servers know: ok, or why it failed.
  absl::Status Wait();
  // False when that did not come within so many seconds.
  bool WaitFor(double seconds);

  // Workers train, or the job is being finished.
  bool training();

 private:
  struct Peer {
    std::string address;
    uint64_t instance = 0;  // RegisterServerRequest.server_instance
    std::unique_ptr<v1::ShardService::Stub> stub;
    double last_heard = 0;
    bool gone = false;  // the process that had the job's shard
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

  void Run();
  // `tick`: about kRoundSeconds have passed.
  void Round(bool tick);
  // Returns the commands that are due, which are under way from now on.
  std::vector<Command> TakeDueCommands(const v1::ShardCommand& command) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether the server can be commanded, and has not been stopped yet.
  bool Commandable(size_t server) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Without rosters.
  v1::ShardCommand NextCommand() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Whether something is to be done before the next tick.
  bool HasWork() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Send(std::vector<Command> commands);
  void OnAnswer(int shard, const v1::ShardCommand& command, absl::StatusOr<v1::ShardReport> answer);
  void OnReport(int shard, const v1::ShardReport& report) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnNoAnswer(int shard, const absl::Status& why, bool stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The process at the server's address obeys another run, or is not the one that registered.
  void OnRefused(int shard, const absl::Status& why, bool stop) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::StatusOr<v1::Lease> GetLeaseLocked(const v1::GetLeaseRequest& request)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  LeaseWaiters::Ask AskAgain() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // The rest of a round; `stop`: servers are commanded to end.
  void FinishRound(bool stop);
  static void Deliver(std::vector<LeaseWaiters::Answer> answers);
  // Answers those who still wait for a lease.
  void AnswerWaiters();
  // Writes the manifests of checkpoints that all shards have saved. The newest that could not be written is
  // tried again in later rounds.
  void WriteManifests(std::vector<CompleteCheckpoint> checkpoints);
  // Reads the shards' files back before it writes the manifest: a checkpoint counts once a job could continue
  // from it.
  absl::Status RecordCheckpoint(const CompleteCheckpoint& checkpoint) const;
  v1::Manifest MakeManifest(const CompleteCheckpoint& checkpoint) const;
  // Whether all servers know that the job is over, or have had the time to hear of it.
  bool StopIsKnown() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void WriteMetrics();
  // Weights, metrics and summary of a job that has ended.
  void WriteFinalOutputs();
  BestKeeper::Owner KeepsBest();
  WorkerStateStore::Owner KeepsWorkerStates();
  void StopLocked(const std::string& reason) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckServer(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckRun(const v1::RegisterServerRequest& request) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  absl::Status CheckWorker(const v1::RegisterRequest& request) const;
  void Admit(const v1::RegisterServerRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // Ends the job, of which a server has lost its part. Returns why.
  absl::Status FailRestarted(size_t server) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  // What to do when a server's state is lost.
  std::string RecoveryAdvice() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  bool AllServersHere() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void Kick() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Options options_;
  const ParameterLayout& layout_;
  ShardHost& local_;
  const Clock& clock_;

  Mutex mu_;
  CondVar changed_;
  std::unique_ptr<Master> master_ ABSL_GUARDED_BY(mu_);
  std::vector<Peer> peers_ ABSL_GUARDED_BY(mu_);  // by shard; the first is this server
  std::set<std::string> devices_ ABSL_GUARDED_BY(mu_);
  CommandSchedule schedule_ ABSL_GUARDED_BY(mu_);
  LeaseWaiters waiters_ ABSL_GUARDED_BY(mu_);
  std::set<int> stopped_ ABSL_GUARDED_BY(mu_);    // servers that have answered the stop
  bool answered_ ABSL_GUARDED_BY(mu_) = false;    // a server, what the job's end may wait for
  bool called_off_ ABSL_GUARDED_BY(mu_) = false;  // stopped before all servers had come
  bool ending_ ABSL_GUARDED_BY(mu_) = false;      // the host is destroyed
  bool over_ ABSL_GUARDED_BY(mu_) = false;
  absl::Status result_ ABSL_GUARDED_BY(mu_);
  std::optional<v1::BestState> kept_ ABSL_GUARDED_BY(mu_);  // whose weights are in model-best.safetensors
  // What batch_norm scored with in the newest evaluation, and in the one whose weights are to be kept.
  v1::EvaluationReport newest_report_ ABSL_GUARDED_BY(mu_);
  v1::EvaluationReport best_report_ ABSL_GUARDED_BY(mu_);
  bool scored_ ABSL_GUARDED_BY(mu_) = false;  // an evaluation has been reported since metrics were written

  // Of the thread, but for what is best.
  const std::unique_ptr<Outputs> outputs_;
  BestKeeper best_keeper_;
  WorkerStateStore state_store_;

  // Of the thread.
  bool outputs_written_ = false;
  std::optional<CompleteCheckpoint> unrecorded_;  // whose manifest could not be written
  double record_at_ = 0;                          // when to try again
  GrowingPause record_pauses_;
  std::optional<double> stop_since_;
  std::unique_ptr<ShardCommander> commander_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_MASTER_HOST_H_
