// `catchment train JOB --out=DIR`: trains a job on this machine. See also cli/local/train_monitor.h.
#ifndef CATCHMENT_CLI_LOCAL_TRAIN_H_
#define CATCHMENT_CLI_LOCAL_TRAIN_H_

#include <string>
#include <vector>

#include "cli/base/process.h"
#include "cli/base/terminal.h"
#include "cli/local/local_cluster.h"
#include "cli/local/train_monitor.h"
#include "common/net/rpc.h"
#include "common/program/command_line.h"

namespace catchment {

struct TrainOptions {
  std::string job;               // file; empty: that of the resumed run, or described by the program
  std::vector<std::string> set;  // "path=value"
  int servers = 0;               // 0: 1, or 2 with faults.standby
  int workers = 0;               // 0: the number in the job
  bool evaluator = true;
  int threads = 0;  // of each worker; 0: the machine's processors divided between the workers
  std::string device;
  std::string program;  // command for a shell that computes the gradients; empty: the job's layers do
  std::string out = "out";
  std::string trace;  // directory; empty: no trace
  bool json = false;
  bool verbose = false;
  bool no_shared_memory = false;
  std::string stage;                     // directory for copies of the data; empty: none
  AutoSwitch resume = AutoSwitch::kOff;  // kAuto: if there is a checkpoint
  bool overwrite = false;
  double stall_seconds = 600;

  double seconds = 0;      // of training; 0: until the budget is spent
  int evaluator_nice = 5;  // as that of ClusterPlan
  bool door = false;       // for a program (docs/doors.md)

  std::vector<std::string> args;  // the whole command line, for ResumeCommand
};

// Returns a command line that fills *options except `args`.
CommandLine TrainCommandLine(TrainOptions* options);

// Returns the command that resumes an interrupted run: "catchment train JOB ... --resume".
std::string ResumeCommand(const TrainOptions& options);

// Runs a command line. Returns the exit code, which --help explains. Call it on the main thread, before any
// other thread is started.
int RunTrainCommand(const std::vector<std::string>& args, const Streams& streams);

// Trains, and returns the exit code, or why training did not begin.
absl::StatusOr<int> RunTrain(const TrainOptions& options, const DaemonPaths& daemons,
                             const TrainBounds& bounds, SignalWaiter* signals, const Streams& streams);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOCAL_TRAIN_H_
