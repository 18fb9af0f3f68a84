// Runs the control loop (server/control/control_loop.h) in real time: forwards calls to it, and carries its
// effects out. It sends commands to servers, answers calls, and writes manifests, metrics, the record and the
// outputs of the job.
//
// A host serves one run. With a directory for checkpoints, a server that comes back after training had begun
// ends the run: the owner of the host begins another one from the newest complete checkpoint (run_start.h).
#ifndef CATCHMENT_SERVER_HOST_MASTER_HOST_H_
#define CATCHMENT_SERVER_HOST_MASTER_HOST_H_

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"
#include "common/energy/account.h"
#include "common/job/parameter_layout.h"
#include "common/net/rpc.h"
#include "proto/master.pb.h"
#include "proto/wire.grpc.pb.h"
#include "server/control/logged_loop.h"
#include "server/host/best_keeper.h"
#include "server/host/shard_commander.h"
#include "server/host/shard_host.h"
#include "server/host/worker_state_store.h"
#include "server/outputs/outputs.h"
#include "server/outputs/progress_log.h"

namespace catchment {

// Threads: safe. One thread of the host makes the steps of the loop and writes files; another one receives
// the servers' answers.
class MasterHost {
 public:
  struct Options : RunOptions {
    std::shared_ptr<grpc::ChannelCredentials> credentials;
    std::string checkpoint_dir;  // "": no checkpoints are written
    std::string out_dir;         // "": no outputs are written
    std::string control_log;     // file that receives the calls of the control loop; "": none
  };

  // Creates the host, and writes the record of the run. `layout`, `local` and `clock` must outlive it.
  // Errors: those of Master::Create, Outputs::Open and WriteRunRecord, and of the control log.
  static absl::StatusOr<std::unique_ptr<MasterHost>> Create(Options options, const ParameterLayout* layout,
                                                            ShardHost* local, const Clock* clock,
                                                            std::optional<v1::MasterState> resumed);
  ~MasterHost();

  // Sets the HOST:PORT on which this server listens. The job does not begin, or continue, before.
  void SetAddress(const std::string& address);
  // Returns the run as a master at `address` describes it to servers.
  v1::Run RunAt(const std::string& address) const { return catchment::RunAt(options_, address); }
  // Returns the key of the members' tokens (common/wire/token.h).
  const std::string& token_key() const { return options_.token_key; }

  // Answers a call of the master's service. `respond` is called once with the reply: at once, or on another
  // thread when the worker's lease is there (within JobMembers::LongestLeaseWait), or when the standby, if
  // there is one, has what the reply shows. Errors: those of ControlLoop::Answer and of WorkerStateStore;
  // ResourceExhausted if this process cannot have as many files open as another worker needs.
  void Answer(const v1::Call& call, Respond respond);
  // For KeepBest.
  BestKeeper* best_keeper() { return &best_keeper_; }
  v1::JobStatus Status();

  // Blocks until the job has ended and all servers have been notified, or until the run has ended because a
  // server was lost (loss). Returns OK, or why the job failed.
  absl::Status Wait();
  // Returns false if that has not happened after `seconds`.
  bool WaitFor(double seconds);
  // Ends the run, because another process has taken its place. Nothing is written any more.
  void OnReplaced(const absl::Status& status);
  // Returns why the job must go back to a checkpoint; nothing if it need not. Call it after Wait.
  std::optional<RunLoss> loss();
  // Returns the record of the run.
  v1::RunRecord record();
  // Returns true while workers train and while the job is being finished.
  bool training();
  // As that of ControlLoop. Call it after Wait.
  int MembersToTell();

 private:
  MasterHost(Options options, const ParameterLayout* layout, ShardHost* local, const Clock* clock,
             std::unique_ptr<Outputs> outputs, std::unique_ptr<LoggedLoop> loop);

  BestKeeper::Owner BestKeeperOwner();
  WorkerStateStore::Owner StateStoreOwner();
  // Calls a method of the loop, and sees to what follows from it.
  template <auto kCall, typename... Arguments>
  auto Call(Arguments&&... arguments);
  // Appends the image to the log that the loop asks for, and wakes the host's thread if it has work.
  void AfterCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);
  void OnImage(uint64_t image, bool acknowledged);
  void AnswerFromLoop(const v1::Call& call, Respond respond);
  // Has a part of a worker's state saved before the loop answers.
  void SaveWorkerState(const v1::Call& call, Respond respond);
  // Returns ResourceExhausted if there is no room for a worker that registers.
  absl::Status CheckRoom(const v1::Call& call);
  // Completes the replies, and sends them.
  void Reply(std::vector<ReadyReply> replies);

  // The host's thread.
  void Run();
  void CarryOut(Effects effects);
  void Send(std::vector<ServerCommand> commands);
  // Executes a command of the local shard.
  void CommandLocal(const ServerCommand& one);
  void OnAnswer(int server, const v1::ShardCommand& command, const absl::StatusOr<v1::ShardReport>& answer);
  v1::ShardService::Stub* StubOf(const ServerCommand& command);
  void WriteMetrics(bool scored);
  // Completes the status. It reads files of the system, so call it without mu_.
  void AddEnergy(v1::JobStatus* status);
  void WriteRecord(const v1::RunRecord& record);

  const Options options_;
  const ParameterLayout& layout_;
  ShardHost& local_;
  const Clock& clock_;
  StandbyLog* const log_;  // of shard 0 and the master; null: there is no standby

  Mutex mu_;
  CondVar changed_;
  const std::unique_ptr<LoggedLoop> loop_ ABSL_PT_GUARDED_BY(mu_);
  double next_step_ ABSL_GUARDED_BY(mu_) = 0;  // for which the thread waits
  bool ending_ ABSL_GUARDED_BY(mu_) = false;   // the host is destroyed
  bool over_ ABSL_GUARDED_BY(mu_) = false;     // the thread has carried out all effects

  EnergyAccount energy_;

  // Used by the host's thread; WriteBest is called on the keeper's.
  const std::unique_ptr<Outputs> outputs_;
  BestKeeper best_keeper_;
  WorkerStateStore state_store_;

  // Used by the host's thread.
  ProgressLog progress_log_;
  struct Peer {
    std::string address;
    std::unique_ptr<v1::ShardService::Stub> stub;
  };
  std::map<int, Peer> peers_;  // by server
  std::unique_ptr<ShardCommander> commander_;
  std::thread thread_;
};

template <auto kCall, typename... Arguments>
auto MasterHost::Call(Arguments&&... arguments) {
  MutexLock lock(&mu_);
  if constexpr (std::is_void_v<std::invoke_result_t<decltype(kCall), ControlLoop*, Arguments...>>) {
    loop_->Call<kCall>(std::forward<Arguments>(arguments)...);
    AfterCall();
  } else {
    auto result = loop_->Call<kCall>(std::forward<Arguments>(arguments)...);
    AfterCall();
    return result;
  }
}

}  // namespace catchment

#endif  // CATCHMENT_SERVER_HOST_MASTER_HOST_H_
