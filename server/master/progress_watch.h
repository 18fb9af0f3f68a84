// Which workers make no progress although they have work, and for how long: one whose training thread hangs
// goes on sending heartbeats, and a synchronous job would wait for it for ever.
//
// A worker makes progress when it reports more steps, when servers answer more of its contributions, and when
// it is given samples; it need not make any while it has no work, and while its contribution waits for those
// of others.
//
// Units: seconds, on any clock that never goes back. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_
#define CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_

#include <cstdint>
#include <map>

namespace catchment {

class ProgressWatch {
 public:
  // One worker at one moment; steps since its registration.
  struct Work {
    bool to_do = false;  // it has work, and does not wait for others
    uint64_t granted = 0;
    uint64_t reported = 0;         // by the worker
    uint64_t answered = 0;         // by all servers
    double mean_step_seconds = 0;  // 0: none is done yet
  };

  // stuck_seconds: faults.stuck_seconds; 0: no worker is ever stuck. lease_seconds:
  // faults.worker_lease_seconds.
  ProgressWatch(double stuck_seconds, double lease_seconds)
      : stuck_seconds_(stuck_seconds), lease_seconds_(lease_seconds) {}

  enum class Verdict {
    kFine,
    kNoProgress,  // for so long that people should look at it
    kStuck,       // for so long that it is to be let go
  };
  // Takes the state of a worker, by incarnation.
  Verdict Observe(uint64_t incarnation, const Work& work, double now);
  // Returns for how long the worker has made no progress, as last observed; 0 where that is fine.
  double SecondsWithout(uint64_t incarnation, double now) const;
  // Returns after how many seconds without progress the worker is stuck; 0: never.
  double Limit(const Work& work) const;

  void Forget(uint64_t incarnation) { workers_.erase(incarnation); }
  // Counts `seconds` in which the master did not run as no time at all.
  void Extend(double seconds);

 private:
  struct Watched {
    Work last;
    double since = 0;  // of the last progress
    Verdict verdict = Verdict::kFine;
  };

  const double stuck_seconds_;
  const double lease_seconds_;
  std::map<uint64_t, Watched> workers_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_PROGRESS_WATCH_H_
