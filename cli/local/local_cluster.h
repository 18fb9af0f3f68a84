// The daemons of one job as child processes on this machine: servers, workers and an evaluator.
//
// Threads: none; an object is used by the thread that created it, which must not end first (see
// cli/base/process.h).
#ifndef CATCHMENT_CLI_LOCAL_LOCAL_CLUSTER_H_
#define CATCHMENT_CLI_LOCAL_LOCAL_CLUSTER_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/base/temporary_directory.h"

namespace catchment {

struct DaemonPaths {
  std::string server;
  std::string worker;
};

// Finds the daemons in the command's `directory` (an installation), or in ../server and ../worker (Bazel's
// output). NotFound lists the files that were tried.
absl::StatusOr<DaemonPaths> FindDaemons(const std::string& directory);

// Returns the directory of the running program's file.
absl::StatusOr<std::string> OwnDirectory();

// Finds the daemons of the running command.
absl::StatusOr<DaemonPaths> FindOwnDaemons();

struct ClusterPlan {
  DaemonPaths daemons;
  std::string job;          // file
  std::string out;          // the run's directory; logs go to out/logs
  std::string checkpoints;  // directory
  int servers = 1;
  int workers = 1;
  bool evaluator = true;
  int evaluator_nice = 5;  // scoring is less urgent than training
  int threads = 1;         // of each worker
  std::string device;      // empty: the job's
  std::string program;     // of the workers and the evaluator; empty: none
  std::string trace;       // directory for traces; empty: none
  std::string stage;       // directory for copies of the data; empty: none
  bool resume = false;
  // A directory for the servers' Unix sockets; empty: they take free ports of 127.0.0.1, which every user of
  // the machine can reach.
  std::string sockets;
};

// Creates a directory in which other users of the machine cannot connect to sockets: in $XDG_RUNTIME_DIR,
// $TMPDIR, /tmp or `last_resort`, in the first that exists and whose path is short enough for a socket's.
// Errors: that of the last attempt.
absl::StatusOr<TemporaryDirectory> CreateSocketDirectory(const std::string& last_resort);

enum class Part { kServer, kWorker, kEvaluator };

// The end of a child process.
struct Departure {
  Part part = Part::kWorker;
  std::string name;  // "worker-1"
  pid_t pid = 0;
  int worker = -1;  // of a worker: its index in the job, as in its status; -1: unknown
  ProcessEnd end;
  std::string log;                // file
  std::vector<std::string> tail;  // the last lines of the log
};

// Returns "worker-1 (pid 4711, worker 0 of the job) died: killed by SIGKILL (9); the last lines of
// out/logs/worker-1.log:" and those lines.
std::string ToString(const Departure& departure);

// Returns why a process has ended, as far as one line can: the last line of its log, without time and source,
// or the signal that killed it.
std::string ReasonOf(const Departure& departure);

// Returns the threads that all processes of a cluster have, with those of this command.
int64_t ThreadsOf(const ClusterPlan& plan);

// Return the command lines of the processes. `master` is the master's address, and `address` that of a server
// that is started again.
Command ServerCommand(const ClusterPlan& plan, int index, const std::string& master,
                      const std::string& address = "");
Command WorkerCommand(const ClusterPlan& plan, int index, const std::string& master);
Command EvaluatorCommand(const ClusterPlan& plan, const std::string& master);

class LocalCluster {
 public:
  // The destructor kills all children.
  explicit LocalCluster(ClusterPlan plan) : plan_(std::move(plan)) {}

  // Starts the master, waits until it listens, at most `listen_seconds`, and starts the others.
  // Errors: Aborted after a signal; Unavailable or DeadlineExceeded, with the end of its log, if the master
  // ended or did not listen; those of starting a program.
  absl::Status Start(double listen_seconds, SignalWaiter* signals);

  // Returns HOST:PORT or unix:PATH.
  const std::string& master() const { return master_; }
  // Call it only after Start.
  pid_t MasterPid() const { return children_.front().process.pid(); }
  // Returns the children that have ended since the last call.
  std::vector<Departure> Reap();
  int Running(Part part) const;
  bool MasterRuns() const;
  bool AnyRuns() const;
  // Returns the name of the child with this process id, "worker-1"; empty if there is none.
  std::string NameOf(pid_t pid) const;
  // Returns the process ids of the workers and the evaluator that run.
  std::vector<pid_t> Members() const;
  // Kills a child, which Reap then returns.
  void Kill(pid_t pid);
  absl::Status RestartEvaluator();
  // Starts a server or a worker that has ended again, a server at its former address.
  absl::Status Restart(const std::string& name);
  // Starts all workers that have ended again.
  absl::Status RestartWorkers();
  // Returns the run's directory.
  const std::string& out() const { return plan_.out; }

  void SignalMaster(int signal);
  void SignalWorkers(int signal);  // and the evaluator
  void SignalAll(int signal);

 private:
  struct Child {
    Part part;
    int index;  // among those of its part
    Process process;
    std::string log;
    std::string address;  // of a server that was started again
    bool reaped = false;
  };

  absl::Status Add(Part part, int index, const Command& command);
  absl::Status Restart(Child* child);
  absl::Status AwaitMaster(double seconds, SignalWaiter* signals);

  const ClusterPlan plan_;
  std::vector<Child> children_;  // the master first
  std::string master_;
};

// Returns the address in the line "catchment_server INDEX: listening on HOST:PORT" of a server's output;
// empty if there is none.
std::string ListeningAddress(const std::string& output, int index);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOCAL_LOCAL_CLUSTER_H_
