// The members of a job and their progress: who may join it, with which data, who has left, and whose
// processes stay until the last checkpoint is recorded.
//
// Units: seconds. Threads: not thread-safe. Errors: NotFound for a sender that is not a member;
// FailedPrecondition for a member that does not fit the job; Unavailable for one that may fit it later.
#ifndef CATCHMENT_SERVER_CONTROL_JOB_MEMBERS_H_
#define CATCHMENT_SERVER_CONTROL_JOB_MEMBERS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/base/clock.h"
#include "common/job/parameter_layout.h"
#include "proto/checkpoint.pb.h"
#include "proto/job.pb.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "proto/wire.pb.h"
#include "server/control/event_log.h"
#include "server/control/job_progress.h"
#include "server/control/membership.h"

namespace catchment {

class JobMembers {
 public:
  static constexpr double kLeaseWaitSeconds = 3;
  // The shortest interval between two heartbeats of a worker.
  static constexpr double kHeartbeatSeconds = 0.5;

  // All references and pointers must outlive this object. `from`: of a resumed job, otherwise empty.
  JobMembers(const v1::Job& job, const std::vector<TensorSpec>& tensors, const v1::MasterState& from,
             EventLog* events, const Clock* clock);

  const Membership& all() const { return membership_; }
  JobProgress& progress() { return progress_; }
  const JobProgress& progress() const { return progress_; }
  int num_workers() const { return membership_.num_workers(); }
  uint64_t next_incarnation() const { return membership_.next_incarnation(); }
  // Returns the index of the worker with this incarnation. NotFound if it is not a member.
  absl::StatusOr<uint32_t> IndexOf(uint64_t incarnation) const;
  // Returns the number of training samples of the job's workers; 0: unknown.
  uint64_t train_samples() const { return train_samples_; }

  // Checks whether the newcomer fits the job, which must have room (ResourceExhausted). Unavailable while its
  // address is barred, because workers from there were stuck, or vanished, too often, and others train.
  absl::Status Check(const v1::RegisterRequest& request, const std::string& origin) const;
  // Lets the newcomer wait if its data differs from that of the workers that are there and `data_is_open`
  // (JobLeases::DataIsOpen). If those of its kind outnumber these, and are most of the job's workers, returns
  // why these must be removed; otherwise an empty string.
  absl::StatusOr<std::string> CheckAgrees(const v1::RegisterRequest& request, const std::string& origin,
                                          bool data_is_open);
  // Adds the newcomer, which has passed both. A first worker decides on open data: evaluators with classes of
  // other names are removed. `joined_late`: others train.
  Member* Register(const v1::RegisterRequest& request, const std::string& address, bool data_is_open,
                   bool joined_late);

  // Restart the heartbeat timeout of a member and return it.
  absl::StatusOr<Member*> Renew(v1::Role role, uint32_t index, uint64_t incarnation) {
    return membership_.Renew(role, index, incarnation, clock_->Now());
  }
  absl::StatusOr<Member*> RenewEvaluator(uint64_t incarnation) {
    return membership_.RenewEvaluator(incarnation, clock_->Now());
  }
  // Returns the worker without doing so.
  absl::StatusOr<Member*> FindWorker(uint32_t index, uint64_t incarnation) {
    return membership_.Renew(v1::WORKER, index, incarnation, /*now=*/0);
  }
  // Notes which workers have lost their connection to the shard.
  void TakeDisconnected(const v1::ShardReport& report);
  // Extends the timeouts of members by `seconds`, in which the master itself did not run (a suspended
  // machine, SIGSTOP) and could not receive their calls.
  void ExtendDeadlines(double seconds);

  // Removes a member on its request and returns it, with the reason in one line; nothing if it has left.
  struct Left {
    Member member;
    std::string reason;
  };
  std::optional<Left> Leave(const v1::LeaveRequest& request);
  void Remove(const Member& member);
  // Return members that are to be removed: all lost ones, and the worker, if any, that has stated more steps
  // to a server than it was assigned.
  std::vector<Member> TakeExpired() { return membership_.TakeExpired(clock_->Now()); }
  std::optional<Member> FindOverstated(const v1::PushMark& mark, uint32_t server);
  // Lets indices of former workers be reused.
  void FreeIndices(const std::vector<uint32_t>& workers);

  // Returns the interval between two calls of one kind by a worker: `seconds`, or more with many workers, to
  // limit the rate of calls to the master.
  double Spread(double seconds) const;
  // Returns the longest time for which an answer of WAIT may be delayed: kLeaseWaitSeconds, or more with many
  // workers, but at most a third of the heartbeat timeout.
  double LongestLeaseWait() const;

  // Notes that the process of a worker that has left stays until the last checkpoint is recorded, and whether
  // it knows that the weights are final. EndStay returns true if it stayed.
  void Stay(uint64_t incarnation, bool knows) { staying_[incarnation] = knows; }
  bool EndStay(uint64_t incarnation) { return staying_.erase(incarnation) > 0; }
  // Returns true for a process that stays and does not know that.
  bool StaysUnaware(uint64_t incarnation) const;
  int num_staying() const { return static_cast<int>(staying_.size()); }

  // Changes the number of evaluators for one of which the final evaluation waits: those that the job had
  // before a loss, or those that are being started for it.
  void ExpectEvaluators(int evaluators) { expected_evaluators_ = evaluators; }
  // Returns the number of evaluators that the job has, has lost or is to have.
  int expected_evaluators() const { return expected_evaluators_; }

  void Fill(v1::JobStatus* status) const;
  void Fill(v1::MasterState* state) const;
  void Save(v1::MasterImage* image) const;
  // Members count as heard of now. The next incarnation is at least `next_incarnation`.
  void Restore(const v1::MasterImage& image, uint64_t next_incarnation);

 private:
  absl::Status CheckFits(const v1::RegisterRequest& request) const;
  // Returns how the newcomer's data differs from the job's; empty if it does not, or may decide it.
  std::string DescribeOtherData(const v1::RegisterRequest& request, bool data_is_open) const;
  // Sets the names of the classes, and removes evaluators with others.
  void SetClassNames(uint64_t names);
  void AddEvent(absl::string_view event, std::optional<uint32_t> lost = std::nullopt) {
    events_->AddOfMember(event, clock_->Now(), lost);
  }

  const v1::Job& job_;
  const std::vector<TensorSpec>& tensors_;
  EventLog* const events_;
  const Clock* const clock_;

  Membership membership_;
  JobProgress progress_;
  uint64_t train_samples_;
  uint64_t class_names_;        // RegisterRequest.class_names of the workers; 0: none
  uint64_t data_checksum_ = 0;  // of the first worker; 0: unknown
  // A worker's statement of its data.
  struct Statement {
    uint64_t train_samples = 0, class_names = 0;
    bool operator==(const Statement&) const = default;
  };
  std::map<std::string, Statement> waiting_;  // by process, of workers that wait because theirs differs
  int expected_evaluators_ = 0;               // present ones, lost ones that may come back, and those to come
  std::map<uint64_t, bool> staying_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_JOB_MEMBERS_H_
