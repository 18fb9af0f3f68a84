// The servers of a job as its master knows them: which process has which shard, who keeps whose copy, what
// each of them must be told, and what it means for the job if one does not answer or was started again.
//
// Units: seconds. Threads: not thread-safe. Time comes from outside.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_SERVERS_H_
#define CATCHMENT_SERVER_CONTROL_JOB_SERVERS_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/base/clock.h"
#include "common/base/patience.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/command_schedule.h"
#include "server/control/effects.h"
#include "server/control/job_history.h"
#include "server/control/master.h"
#include "server/control/run_options.h"

namespace catchment {

class JobServers {
 public:
  struct Server {
    std::string address;    // empty: it has not registered yet
    uint64_t instance = 0;  // RegisterServerRequest.server_instance
    double last_heard = 0;
    Patience patience;     // with commands that it does not answer
    bool gone = false;     // the process that had the job's shard has ended
    bool stopped = false;  // it has answered the stop
    std::string failure;   // why the last process that has registered no more has ended
    // With Faults.standby: of the shard (ShardCommand.Standby.epoch), and of the last process that was asked
    // to restore it.
    uint64_t epoch = 1;
    uint64_t offered_epoch = 1;
  };

  // `own_version` returns the version of shard 0. All pointers outlive the object.
  JobServers(const RunOptions* options, bool can_go_back, std::function<uint64_t()> own_version,
             Master* master, JobHistory* history, const Clock* clock);

  // Continues with the servers of a master that was lost.
  void Restore(const RunOptions::Restored& from);
  void Save(v1::MasterCopy* copy) const;
  // Sets the address of server 0.
  void SetAddress(const std::string& address) { servers_[0].address = address; }

  size_t size() const { return servers_.size(); }
  const Server& server(size_t index) const { return servers_[index]; }
  std::vector<std::string> Addresses() const;
  bool AllHere() const;
  // Returns which servers the job waits for, for people.
  std::string DescribeMissing() const;
  // Returns the server that keeps the copy of this one's shard.
  size_t StandbyOf(size_t server) const { return (server + 1) % servers_.size(); }
  // Returns the standby of server 0. Nothing if there is none, or if not all servers have registered.
  std::optional<v1::ShardCommand::Standby> StandbyOfMaster() const;

  // Returns why a server may not register, or OK. A server that was started again and has lost its shard ends
  // the run.
  absl::Status Check(const v1::RegisterServerRequest& request);
  // Registers a server that has passed Check, or tells it how to begin again.
  v1::RegisterServerReply Accept(const v1::RegisterServerRequest& request);
  // Notes why a server has ended.
  void NoteFailure(const v1::RegisterServerRequest& request);
  // Returns true if the job has ended without failing, and this process had no part in it.
  bool HasEndedWithout(const v1::RegisterServerRequest& request);
  // Fails a job that recovers if a server has not come back after connect_timeout_seconds.
  void CheckForMissing();

  // A tenth of a second has passed.
  void Tick() { schedule_.Tick(); }
  // Returns true if a server must get the command before the next tick.
  bool HasDueAtOnce(const v1::ShardCommand& command) const;
  // Returns the command for each server to which it is due, and marks it as in flight. `with_rosters` returns
  // the command with rosters.
  std::vector<ServerCommand> TakeDue(const v1::ShardCommand& command,
                                     const std::function<v1::ShardCommand()>& with_rosters);
  // Ends the command in flight. Returns true if the answer is of the process that has registered, and is a
  // report.
  bool OnAnswer(int server, const v1::ShardCommand& command, const absl::StatusOr<v1::ShardReport>& answer);
  // Returns true if all servers know that the job has ended, or have had enough time to learn it since
  // `since`.
  bool StopIsKnown(double since) const;

  // Returns why the job must go back to a checkpoint; nothing if it need not.
  const std::optional<RunLoss>& loss() const { return loss_; }
  // Returns true if a master that is started again continues the job that failed.
  bool continues_later() const { return continues_later_; }

 private:
  CommandSchedule::Wanted WantedOf(const v1::ShardCommand& command) const;
  // Returns true if the server is reachable and has not been stopped.
  bool Commandable(size_t server) const {
    return (server == 0 || !servers_[server].address.empty()) && !servers_[server].stopped;
  }
  bool HasStandbys() const;
  const Server& KeptBy(size_t server) const {
    return servers_[(server + servers_.size() - 1) % servers_.size()];
  }
  void SetStandby(size_t server, v1::ShardCommand* command) const;
  absl::Status CheckRun(const v1::RegisterServerRequest& request) const;
  absl::Status CheckPlace(const v1::RegisterServerRequest& request) const;
  // Returns true if another process has come for the shard of a server, which it must restore from the
  // standby.
  bool MustRestore(const v1::RegisterServerRequest& request) const;
  // Returns true if the server's shard is not that of this run's beginning.
  bool MustBeginAgain(const v1::RegisterServerRequest& request) const;
  void Admit(const v1::RegisterServerRequest& request);
  // Records that a process has restored the shard of a server.
  void OnRestored(const v1::RegisterServerRequest& request);
  // Ends the run, or without a directory for checkpoints fails the job, because a server was restarted and
  // has lost its shard. Returns the error for that server.
  absl::Status OnRestarted(size_t server);
  absl::Status FailRestarted(size_t server);
  void OnNoAnswer(int server, const absl::Status& why, bool stop);
  // Handles the refusal of a process that belongs to another run, or that is not the one that registered.
  void OnRefused(int server, const absl::Status& why, bool stop);
  // Returns what the user can do when a server's state is lost.
  std::string RecoveryAdvice() const;

  const RunOptions& options_;
  const bool can_go_back_;
  const std::function<uint64_t()> own_version_;
  Master& master_;
  JobHistory& history_;
  const Clock& clock_;
  const double begun_;  // the time of construction
  std::vector<Server> servers_;
  CommandSchedule schedule_;
  std::optional<RunLoss> loss_;
  bool continues_later_ = false;
};

// Returns, for people, how the job has ended.
std::string DescribeEnd(const Master& master);

// Returns the run as a master at `address` describes it to servers.
v1::Run RunAt(const RunOptions& options, const std::string& address);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_SERVERS_H_
