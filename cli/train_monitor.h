// Watches a running job from its start to its end: shows progress, says which process died and why, decides
// whether training can go on, and ends everything.
//
//   a worker is lost           training goes on while another one is left (before training begins: it cannot)
//   the evaluator is lost      it is started again, twice; then training goes on without
//   a server is lost           the job ends
//   the master keeps silent, or nothing moves for a stated time: the job ends
//   SIGINT, SIGTERM, SIGHUP    the job stops in order, with a checkpoint; a second one kills
//
// Units: seconds.
// Threads: none of its own; used by the thread that made the cluster.
#ifndef CATCHMENT_CLI_TRAIN_MONITOR_H_
#define CATCHMENT_CLI_TRAIN_MONITOR_H_

#include <string>

#include "absl/status/status.h"
#include "cli/job_control.h"
#include "cli/local_cluster.h"
#include "cli/process.h"
#include "cli/progress.h"
#include "common/clock.h"

namespace catchment {

// What each wait is bounded by.
struct TrainBounds {
  double poll = 0.5;    // between two looks at the master
  double listen = 60;   // until the master listens
  double silence = 60;  // of the master, before it is taken for hung
  double stall = 600;   // without a sample, an update, a phase or a score that is new
  double train = 0;     // of training, then the job is stopped in order; 0: until its budget is spent
  double orphan = 5;    // without any worker, after some ended in order
  double stop = 60;     // for the job to end when told to
  double end = 15;      // for a process to end by itself when the job is over, and again when told to
};

// The reason that a job gives which was stopped because its TrainBounds::train had passed.
std::string TimeIsUp(double seconds);

struct TrainOutcome {
  absl::Status status;     // ok: the master ended in order
  int signal = 0;          // that the user ended the job with; 0: none
  v1::JobStatus training;  // the last one while it trained
};

class TrainMonitor {
 public:
  // None is owned.
  TrainMonitor(LocalCluster* cluster, JobControl* master, SignalWaiter* signals, TrainObserver* observer,
               const TrainBounds& bounds)
      : cluster_(cluster), master_(master), signals_(signals), observer_(observer), bounds_(bounds) {}

  // Returns when no process is left.
  TrainOutcome Run();

 private:
  void Watch();
  double PollSeconds() const;
  void PollMaster();
  void StopForTime();
  void HandleSignal(int signal);
  void HandleDeparture(const Departure& departure);
  void LoseWorker(const Departure& departure);
  void LoseEvaluator(const Departure& departure);
  void CheckBounds();
  void CheckWorkers();
  void EndAll();
  void AwaitEnd(double seconds, bool master_only);
  void Fail(const std::string& reason);

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
  v1::JobStatus status_;   // the last one
  double answered_ = 0;    // when
  double moved_ = 0;       // when it last differed
  double stop_asked_ = 0;  // when; 0: never
  double orphaned_ = 0;    // since when no worker runs; 0: some do
  int workers_in_order_ = 0;
  int evaluator_restarts_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_TRAIN_MONITOR_H_
