// The daemons of one job as child processes on this machine: servers, workers and an evaluator.
//
// Threads: none; used by the thread that made it, which must last (see cli/process.h).
#ifndef CATCHMENT_CLI_LOCAL_CLUSTER_H_
#define CATCHMENT_CLI_LOCAL_CLUSTER_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/process.h"
#include "common/rpc.h"

namespace catchment {

struct DaemonPaths {
  std::string server;
  std::string worker;
};

// Beside the command (an installation), or in ../server and ../worker (Bazel's output). `directory` is the
// command's own. NotFound names every place looked at.
absl::StatusOr<DaemonPaths> FindDaemons(const std::string& directory);

// The directory of the running program's file.
absl::StatusOr<std::string> OwnDirectory();

// Those of the running command.
absl::StatusOr<DaemonPaths> FindOwnDaemons();

struct ClusterPlan {
  DaemonPaths daemons;
  std::string job;          // file
  std::string out;          // the run's directory; logs go to out/logs
  std::string checkpoints;  // directory
  int servers = 1;
  int workers = 1;
  bool evaluator = true;
  int evaluator_nice = 5;  // scores are less urgent than training
  int threads = 1;         // per worker
  std::string device;      // empty: the job's
  std::string program;     // that workers and evaluator are started with; empty: none
  bool resume = false;
  TlsFiles tls;
};

enum class Part { kServer, kWorker, kEvaluator };

// A child that ended.
struct Departure {
  Part part = Part::kWorker;
  std::string name;  // "worker-1"
  pid_t pid = 0;
  ProcessEnd end;
  std::string log;                // file
  std::vector<std::string> tail;  // its last lines
};

// "worker-1 (pid 4711) died: killed by SIGKILL (9); the last lines of out/logs/worker-1.log:" and these.
std::string ToString(const Departure& departure);

// The commands, for one to read and for tests. `master` is the master's address.
Command ServerCommand(const ClusterPlan& plan, int index, const std::string& master);
Command WorkerCommand(const ClusterPlan& plan, int index, const std::string& master);
Command EvaluatorCommand(const ClusterPlan& plan, const std::string& master);

class LocalCluster {
 public:
  // All children are killed by the destructor.
  explicit LocalCluster(ClusterPlan plan) : plan_(std::move(plan)) {}

  // Starts the master, waits until it listens, at most `listen_seconds`, and starts the others.
  // Errors: Aborted when a signal to end came, Unavailable or DeadlineExceeded when the master ended or kept
  // silent, with its last words; what stands in the way of starting a program.
  absl::Status Start(double listen_seconds, SignalWaiter* signals);

  // HOST:PORT.
  const std::string& master() const { return master_; }
  // Once it has been started.
  pid_t MasterPid() const { return children_.front().process.pid(); }
  // Children that ended since the last call.
  std::vector<Departure> Reap();
  int Running(Part part) const;
  bool MasterRuns() const;
  bool AnyRuns() const;
  absl::Status RestartEvaluator();

  void SignalMaster(int signal);
  void SignalAll(int signal);

 private:
  struct Child {
    Part part;
    Process process;
    std::string log;
    bool reaped = false;
  };

  absl::Status Add(Part part, const Command& command);
  absl::Status AwaitMaster(double seconds, SignalWaiter* signals);

  const ClusterPlan plan_;
  std::vector<Child> children_;  // the master first
  std::string master_;
};

// The address in a line "catchment_server INDEX: listening on HOST:PORT" of a server's output; empty without.
std::string ListeningAddress(const std::string& output, int index);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOCAL_CLUSTER_H_
