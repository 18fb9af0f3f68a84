// Runs a job with processes on this machine: shows progress, reports which process died and why, decides
// whether training can continue, and ends all processes.
//
//   a process is killed        a server, the master or a worker that a signal ended is restarted, at most 5
//                              times
//   a worker ends with an      training continues while another one runs; before training, the job ends
//     error
//   a worker or the evaluator  it is killed, and restarted as above, unless it has come back within the time
//     hangs: the master          after which a worker is considered stuck; each restart doubles this time
//     considers it lost
//   the evaluator is lost      it is restarted, twice; then training continues without it
//   a program fails after      the results are kept, and the outcome names the worker
//     its last step
//   a server ends with an      the job ends
//     error
//   the master does not answer, or there is no progress, for a given time: the job ends
//   SIGINT, SIGTERM, SIGHUP    the job stops after saving a checkpoint; a second signal kills its processes
//   a warning of a batch       the job stops after saving a checkpoint, and so it does if the batch system
//     system (IsWarning)       repeats the warning or sends one of the signals above
//
// Units: seconds.
// Threads: none; an object is used by the thread that created the cluster.
#ifndef CATCHMENT_CLI_LOCAL_TRAIN_MONITOR_H_
#define CATCHMENT_CLI_LOCAL_TRAIN_MONITOR_H_

#include <sys/types.h>

#include <map>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/base/process.h"
#include "cli/live/job_control.h"
#include "cli/live/progress.h"
#include "cli/local/local_cluster.h"
#include "common/base/clock.h"
#include "common/base/patience.h"

namespace catchment {

// The limits of all waits.
struct TrainBounds {
  double poll = 0.5;    // between two requests to the master
  double listen = 60;   // until the master listens
  double silence = 60;  // without an answer from the master
  double stall = 600;   // without a new sample, update, phase or score
  double train = 0;     // of training, after which the job is stopped; 0: until its budget is spent
  double orphan = 5;    // without any worker, after some ended with exit code 0
  double stop = 60;     // for the job to stop after a request
  double end = 15;      // for a process to end after the job, and again after SIGTERM
};

// Returns the reason in the summary of a job that was stopped after TrainBounds::train.
std::string TimeIsUp(double seconds);

struct TrainOutcome {
  absl::Status status;     // ok: the master ended with exit code 0
  int signal = 0;          // by which the user ended the job; 0: none
  v1::JobStatus training;  // the last one while it trained
  // For a job with results: the workers whose programs failed after the last step, and "evaluator" if that
  // failed.
  std::set<std::string> failed;
};

class TrainMonitor {
 public:
  // Owns none of the objects.
  TrainMonitor(LocalCluster* cluster, JobControl* master, SignalWaiter* signals, TrainObserver* observer,
               const TrainBounds& bounds)
      : cluster_(cluster),
        master_(master),
        signals_(signals),
        observer_(observer),
        bounds_(bounds),
        patience_(bounds.silence) {}

  // Returns after all processes have ended.
  TrainOutcome Run();

 private:
  void Watch();
  double PollSeconds() const;
  void PollMaster();
  // Keeps the indices that workers have in the job, by which the report of a loss names them, too.
  void NoteIndices();
  void StopForTime();
  void HandleSignal(int signal);
  // Asks workers and evaluator to end, once it is time to.
  void AskWorkers();
  void HandleDeparture(Departure departure);
  // Starts a process that a signal ended again. Returns false if it was not.
  bool Restart(const Departure& departure);
  // Notes whether a worker or an evaluator that has ended leaves something undone although the job has its
  // result.
  void NoteEnd(const Departure& departure);
  // Returns true if the job has its result, so that the loss of a server does no harm.
  bool HasResult() const;
  void LoseWorker(const Departure& departure);
  // Decides whether training continues after the loss of a worker, as soon as the master has answered since.
  void JudgeLoss();
  void LoseEvaluator(const Departure& departure);
  // Starts a lost evaluator again, as soon as the master has answered since.
  void JudgeEvaluator();
  void CheckBounds();
  void CheckWorkers();
  // Notes which processes the master considers lost although they run, and kills those that do not come back.
  void CheckLost();
  void NoteLost(pid_t pid);
  // Returns the last event about a process; empty if there is none.
  std::string LastEventOf(pid_t pid) const;
  void EndAll();
  void AwaitEnd(double seconds, bool master_only);
  void Fail(const std::string& reason);
  // Replaces a failed job's observed reason by the one that the master has written.
  void ReportReason();

  bool Trains() const;
  bool Decided() const { return !outcome_.status.ok() || killed_; }

  LocalCluster* const cluster_;
  JobControl* const master_;
  SignalWaiter* const signals_;
  TrainObserver* const observer_;
  const TrainBounds bounds_;
  const SteadyClock clock_;

  TrainOutcome outcome_;
  bool killed_ = false;
  bool master_ended_ = false;
  v1::JobStatus status_;       // the last one
  double answered_ = 0;        // the time of the last answer
  Patience patience_;          // with a master that does not answer
  bool silent_ = false;        // for longer than the patience
  double moved_ = 0;           // the time of the last progress
  double stop_asked_ = 0;      // the time of the request to stop; 0: none
  bool warned_ = false;        // stop_asked_ is of a warning, and no other signal has followed
  double ask_workers_at_ = 0;  // 0: not, or no more
  double orphaned_ = 0;        // the time since which no worker runs; 0: some do
  int workers_in_order_ = 0;
  uint64_t recoveries_at_end_ = 0;  // when a worker last ended in order
  int evaluator_restarts_ = 0;
  double evaluator_lost_at_ = 0;  // the time of a loss of which JudgeEvaluator has not decided; 0: none
  std::string lost_worker_;  // the last one that failed and of which JudgeLoss has not decided; empty: none
  double lost_at_ = 0;       // the time of its loss
  std::string last_worker_, last_reason_;  // of the worker that ended last
  std::map<pid_t, int> indices_;           // of workers in the job, by process
  std::map<pid_t, double> lost_since_;     // of processes that the master considers lost
  std::map<pid_t, std::string> hung_;      // those that were killed for that: the master's event
  std::map<std::string, int> restarts_;    // of servers and workers, by name
};

// Returns the threads of each worker if this number of workers share this machine.
int ThreadsPerWorker(int workers);

// Returns the bounds of a run whose workers are started with `program`, which may be empty. Programs may need
// more time after the last step.
TrainBounds BoundsFor(const std::string& program, TrainBounds bounds);

// Runs a job until all its processes have ended. Errors: the reason why training could not be started
// (Aborted: a signal); the outcome has the reason why it ended later.
absl::StatusOr<TrainOutcome> RunCluster(const ClusterPlan& plan, const TrainBounds& bounds,
                                        SignalWaiter* signals, TrainObserver* observer);

}  // namespace catchment

#endif  // CATCHMENT_CLI_LOCAL_TRAIN_MONITOR_H_
