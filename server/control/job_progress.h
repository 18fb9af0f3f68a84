// The progress of a job's members, as they report it: totals and rates for the status, the speeds of workers,
// and members that make no progress, or hold up the others (progress_watch.h).
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_PROGRESS_H_
#define CATCHMENT_SERVER_CONTROL_JOB_PROGRESS_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/event_log.h"
#include "server/control/membership.h"
#include "server/control/progress_meter.h"
#include "server/control/progress_watch.h"
#include "server/control/work_totals.h"

namespace catchment {

class JobProgress {
 public:
  // All references and pointers must outlive this object.
  JobProgress(const v1::Job& job, const Membership& members, EventLog* events, const Clock* clock);

  // Records a member's progress. InvalidArgument if it is impossible.
  absl::Status Observe(const v1::Progress& progress, Member* member);
  // Begins to measure the rates anew, because training begins or continues after a pause.
  void Restart() { meter_.Restart(clock_->Now()); }
  // Forgets a member that is removed.
  void Forget(uint64_t incarnation);
  // Does not count `seconds`, in which the master did not run.
  void Extend(double seconds) { watch_.Extend(seconds); }

  // Returns true about once a second: the members are then to be watched.
  bool IsDue();
  // Logs which of the workers make no progress, and returns the members that are stuck.
  std::vector<Member> FindStuck(const std::vector<const Member*>& members,
                                absl::FunctionRef<ProgressWatch::Work(const Member&)> work_of);
  // Logs that the member is removed because it is stuck, and bars the address of a worker.
  void NoteStuck(const Member& member);
  // Returns what is known here of a worker's work. Whether it has any is for the caller to fill in, and so
  // are `answered` and `states_saved`.
  ProgressWatch::Work WorkOf(const Member& worker) const;
  // Returns the time for which workers that must leave may push nothing: the time of a few steps, or of a
  // block over a slow network.
  double LeavePatience() const;

  // Notes that the worker has held up the others for `seconds` (ProgressWatch::Bar).
  void Bar(const Member& worker, double seconds, bool awaited);
  // Does so for a worker that is lost, if updates had to wait for it.
  void BarIfAwaited(const Member& worker);
  // Returns the seconds until workers from this address may register again; 0: they may.
  double BarredFor(const std::string& origin) const { return watch_.BarredFor(origin, clock_->Now()); }

  // Returns Lease.local_steps of the worker's next lease.
  uint32_t LocalStepsOf(const Member& worker) const;
  // Returns ShardCommand.step_seconds.
  double FastestStepSeconds() const;
  // Returns the samples that workers have computed since the master's start.
  uint64_t computed_samples() const { return work_.samples(); }

  // Fills the rates, if the job is training, and the totals. The status has its samples already.
  void Fill(v1::JobStatus* status) const;
  double SecondsWithout(const Member& member) const {
    return watch_.SecondsWithout(member.incarnation, clock_->Now());
  }
  void Save(v1::MasterImage* image) const;
  void Restore(const v1::MasterImage& image);

 private:
  // Returns the steps per second of a worker without its exchanges, at most as many as servers have answered;
  // 0: unknown.
  double SpeedOf(const Member& worker) const;
  // Returns the second highest speed of more than two workers, so that a single one does not decide how the
  // others work, otherwise the highest; 0: unknown.
  double HighSpeed(absl::FunctionRef<double(const Member&)> speed_of) const;

  const v1::Job& job_;
  const Membership& members_;
  EventLog* const events_;
  const Clock* const clock_;

  ProgressMeter meter_;
  WorkTotals work_;
  ProgressWatch watch_;
  double watched_at_ = 0;
  std::set<uint64_t> no_progress_logged_;  // incarnations
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_PROGRESS_H_
