// Detects members that have work but make no progress. A worker whose training thread hangs continues to send
// heartbeats, and a synchronous job would wait for it forever; so would every job for the final evaluation of
// an evaluator that hangs.
//
// A worker makes progress when it reports more steps, when servers answer more of its contributions, when it
// is assigned samples, and, while its turn to save its state may not have come, when another's is saved. No
// progress is expected while it has no work, or while its contribution waits for those of other workers. An
// evaluator makes progress when it asks for an evaluation, scores a minibatch or reports a score; its steps
// are evaluations.
//
// A worker for which others wait has a shorter limit: `hold_up_seconds`, ten times the longest time in which
// another worker has made progress, or a tenth of the time for which it has worked, whichever is longest.
//
// A process that was considered stuck and registers again was only slow: each time doubles its limit, so that
// a step of any length ends some day. A process that never makes progress could hold up the others for ever
// in this way, under one name or many. A worker that was stuck or vanished while others waited counts against
// its address unless it has worked for ten times as long: after a second one, those of its address wait for
// twenty times as long before they register again, so that they cost the others at most about a tenth of
// their time.
//
// Units: seconds, on any clock that never goes back. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_PROGRESS_WATCH_H_
#define CATCHMENT_SERVER_CONTROL_PROGRESS_WATCH_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

namespace catchment {

class ProgressWatch {
 public:
  // The state of a member. Steps are counted from its registration.
  struct Work {
    bool to_do = false;  // it has work and does not wait for others
    bool trains = true;  // it is a worker: others may wait for it
    uint64_t granted = 0;
    uint64_t reported = 0;         // by the member
    uint64_t answered = 0;         // by all servers
    double mean_step_seconds = 0;  // 0: no step is done yet; of an evaluator, the longest
    std::string process;           // the same in all registrations of a process
    // While its own is awaited, and it may need long to save it: the workers' states that are saved already.
    std::optional<uint64_t> states_saved;
  };

  // The arguments are those of the job's faults; with a `stuck_seconds` of 0, no worker is ever considered
  // stuck.
  ProgressWatch(double stuck_seconds, double hold_up_seconds, double heartbeat_timeout_seconds)
      : stuck_seconds_(stuck_seconds),
        hold_up_seconds_(hold_up_seconds),
        heartbeat_timeout_seconds_(heartbeat_timeout_seconds) {}

  enum class Verdict {
    kFine,
    kNoProgress,  // for long enough to be reported
    kStuck,       // for long enough to be removed from the job
  };
  // Records the state of the worker of this incarnation and judges it.
  Verdict Observe(uint64_t incarnation, const Work& work, double now);
  // Returns the seconds without progress as of the last Observe; 0 if the verdict was kFine.
  double SecondsWithout(uint64_t incarnation, double now) const;
  // Returns the number of seconds without progress after which the worker is stuck, while others wait for it
  // if they did at the last Observe; 0: never.
  double Limit(uint64_t incarnation, const Work& work) const;
  // Returns true if others waited for the worker at the last Observe.
  bool IsAwaited(uint64_t incarnation) const;

  void Forget(uint64_t incarnation);
  // Notes that a worker of this process is removed because it is stuck.
  void NoteStuck(const std::string& process);
  // Returns the seconds for which a worker, of which the master has heard last at `heard_at`, has held up the
  // others; 0 if it worked for ten times as long before.
  double SecondsHeldUp(uint64_t incarnation, double heard_at, double now) const;
  // Notes at `now` that a worker from this address is removed because it held up the others for `seconds`.
  // Its `incarnation` counts if it is not below that of `next_incarnation` at the last one that counted:
  // workers that start slowly together are one. `awaited`: others waited for it; if they did not, the time to
  // wait is twice `seconds`, and doubles with each.
  void Bar(const std::string& address, double seconds, uint64_t incarnation, uint64_t next_incarnation,
           double now, bool awaited);
  // Returns the seconds until workers from this address may register again; 0: they may.
  double BarredFor(const std::string& address, double now) const;
  // Returns the time in which servers have answered one step of the worker, on average since its first
  // Observe; 0 if they have not answered any.
  double SecondsPerAnswer(uint64_t incarnation) const;
  // By process. It is all that a master which continues for another needs: what workers do is observed anew.
  const std::map<std::string, uint32_t>& times_stuck() const { return times_stuck_; }
  void Restore(std::map<std::string, uint32_t> times_stuck) { times_stuck_ = std::move(times_stuck); }
  // Does not count `seconds`, in which the master did not run.
  void Extend(double seconds);

 private:
  struct Watched {
    Work last;
    double since = 0;                      // time of the last progress
    double first_at = 0, answered_at = 0;  // times of the first Observe and of the last answer
    uint64_t answered_at_first = 0;
    double longest = 0;  // time without progress that ended with progress
    bool awaited = false;
    Verdict verdict = Verdict::kFine;
  };

  double HoldUpSeconds(uint64_t incarnation, const Watched& watched) const;

  const double stuck_seconds_;
  const double hold_up_seconds_;
  const double heartbeat_timeout_seconds_;
  std::map<uint64_t, Watched> workers_;
  size_t waiting_ = 0;  // workers without work, as of their last Observe
  struct Address {
    uint32_t times = 0;        // that a worker from there was stuck
    uint64_t counts_from = 0;  // the lowest incarnation that counts
    double barred_until = 0;
  };
  std::map<std::string, Address> addresses_;
  std::map<std::string, uint32_t> times_stuck_;  // by process
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_PROGRESS_WATCH_H_
