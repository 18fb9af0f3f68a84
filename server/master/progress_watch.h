// Detects workers that have work but make no progress. A worker whose training thread hangs continues to send
// heartbeats, and a synchronous job would wait for it forever.
//
// A worker makes progress when it reports more steps, when servers answer more of its contributions, and when
// it is assigned samples. No progress is expected while it has no work, or while its contribution waits for
// those of other workers.
//
// A process that was considered stuck and registers again was only slow: each time doubles its limit, so that a step of any
// length ends some day.
//
// Units: seconds, on any clock that never goes back. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_
#define CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_

#include <cstdint>
#include <map>
#include <string>

namespace catchment {

class ProgressWatch {
 public:
  // The state of a worker. Steps are counted from its registration.
  struct Work {
    bool to_do = false;  // it has work and does not wait for others
    uint64_t granted = 0;
    uint64_t reported = 0;         // by the worker
    uint64_t answered = 0;         // by all servers
    double mean_step_seconds = 0;  // 0: no step is done yet
    std::string process;           // the same in all registrations of a process
  };

  // `stuck_seconds` is faults.stuck_seconds; with 0, no worker is ever considered stuck.
  // `heartbeat_timeout_seconds` is faults.heartbeat_timeout_seconds.
  ProgressWatch(double stuck_seconds, double heartbeat_timeout_seconds)
      : stuck_seconds_(stuck_seconds), heartbeat_timeout_seconds_(heartbeat_timeout_seconds) {}

  enum class Verdict {
    kFine,
    kNoProgress,  // for long enough to be reported
    kStuck,       // for long enough to be removed from the job
  };
  // Records the state of the worker of this incarnation and judges it.
  Verdict Observe(uint64_t incarnation, const Work& work, double now);
  // Returns the seconds without progress as of the last Observe; 0 if the verdict was kFine.
  double SecondsWithout(uint64_t incarnation, double now) const;
  // Returns the number of seconds without progress after which the worker is stuck; 0: never.
  double Limit(const Work& work) const;

  void Forget(uint64_t incarnation) { workers_.erase(incarnation); }
  // Notes that a worker of this process is removed because it is stuck.
  void NoteStuck(const std::string& process);
  // Does not count `seconds`, in which the master did not run.
  void Extend(double seconds);

 private:
  struct Watched {
    Work last;
    double since = 0;  // time of the last progress
    Verdict verdict = Verdict::kFine;
  };

  const double stuck_seconds_;
  const double heartbeat_timeout_seconds_;
  std::map<uint64_t, Watched> workers_;
  std::map<std::string, int> times_stuck_;  // by process
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_
