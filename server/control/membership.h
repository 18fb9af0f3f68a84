// The members of the job: workers and evaluators, each with an index (the lowest free one of its role; that
// of a worker becomes free only with FreeIndex) and an incarnation, a number that is never reused. A member
// that sends no call for heartbeat_timeout_seconds is lost, and sooner if a server reports that its
// connection has broken. A lost member may register again and gets another incarnation.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_CONTROL_MEMBERSHIP_H_
#define CATCHMENT_SERVER_CONTROL_MEMBERSHIP_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "proto/master_image.pb.h"
#include "server/control/event_log.h"

namespace catchment {

struct Member {
  v1::Role role = v1::WORKER;
  uint32_t index = 0;
  uint64_t incarnation = 0;
  std::string host;
  uint32_t pid = 0;
  std::string device;
  std::string address;       // from which it registered; empty if that is not known
  bool joined_late = false;  // while others trained
  uint64_t class_names = 0;  // RegisterRequest.class_names
  double heard_at = 0;
  // The time since when it has had no connection to server `disconnected_from` and has sent no call.
  std::optional<double> disconnected_at;
  uint32_t disconnected_from = 0;
  double silence_limit = 0;    // the longest time in that state before it is lost
  v1::Progress progress;       // the newest reported
  v1::Lease lease;             // the last one granted; number 0: none
  v1::StepsImage lease_steps;  // its minibatches, for Save
  uint64_t granted_steps = 0;  // in all its leases
  uint64_t granted_samples = 0;
  // The calls with which an evaluator has asked for an evaluation or reported one, and the time when it was
  // given the one that it works on.
  uint64_t evaluation_calls = 0;
  std::optional<double> evaluates_since;

  // Returns "worker 2 (host:pid)".
  std::string name() const;
  // Returns the index of a worker.
  std::optional<uint32_t> worker() const { return role == v1::WORKER ? std::optional(index) : std::nullopt; }
  // Returns "host:pid", which tells members of one machine apart.
  std::string process() const;
  // Returns its address or, if that is not known, the host that it names.
  const std::string& origin() const { return address.empty() ? host : address; }

  v1::MemberImage Save() const;
  // Returns the member of an image, heard of at `now`.
  static Member Restore(const v1::MemberImage& image, double now);
};

class Membership {
 public:
  // Logs to `events`, which must outlive this object. `groups`: of consistency.grouped, whose worker i is in
  // group i mod groups; otherwise 1.
  Membership(double heartbeat_timeout_seconds, uint64_t next_incarnation, EventLog* events,
             uint32_t groups = 1);

  // A worker gets the lowest free index in one of the groups with the fewest workers.
  Member* Register(const v1::RegisterRequest& request, double now, const std::string& address = "");

  // Restarts the member's heartbeat timeout and returns it. NotFound if it is not a member.
  absl::StatusOr<Member*> Renew(v1::Role role, uint32_t index, uint64_t incarnation, double now);
  absl::StatusOr<Member*> RenewEvaluator(uint64_t incarnation, double now);

  bool HasEvaluator(uint64_t incarnation) const;
  // Returns null if there is no such member.
  const Member* Find(v1::Role role, uint32_t index, uint64_t incarnation) const;

  static constexpr uint32_t kMaxEvaluators = 100;
  // Returns false if there are as many members of the role as there may be: kMaxWorkers workers.
  bool HasRoom(v1::Role role) const;

  void Remove(v1::Role role, uint32_t index);
  // Lets a worker's index be reused. To be called when no shard can report about its former owner any more.
  void FreeIndex(uint32_t worker) {
    held_indices_.erase(worker);
    none_free_below_ = std::min(none_free_below_, worker);
  }

  // Notes that a server has lost its connection to the worker. If the worker sends no call in the next
  // `silence_limit` seconds, it is lost; with its next call, only the heartbeat timeout applies again.
  void SetDisconnected(uint32_t worker, uint64_t incarnation, uint32_t server, double silence_limit,
                       double now);

  // Extends the timeouts of all members by `seconds`, in which the master could not receive their calls.
  void ExtendDeadlines(double seconds, double now);

  // Removes and returns all lost members.
  std::vector<Member> TakeExpired(double now);

  // Return the members of a role by index.
  std::vector<const Member*> workers() const { return MembersOf(v1::WORKER); }
  std::vector<const Member*> evaluators() const { return MembersOf(v1::EVALUATOR); }
  // Returns the incarnations of workers(). The result is cached while no worker joins or leaves.
  const std::vector<uint64_t>& worker_incarnations() const;
  int num_workers() const { return num(v1::WORKER); }
  // Returns the number of workers without those whose connection to a server has broken and that have sent no
  // call since, which may be lost.
  int num_connected_workers() const;
  int num_evaluators() const { return num(v1::EVALUATOR); }
  bool empty() const { return members_.empty(); }

  v1::MembershipImage Save() const;
  // Takes the members of an image, as if all of them had been heard of at `now`.
  void Restore(const v1::MembershipImage& image, double now);

  double heartbeat_timeout_seconds() const { return heartbeat_timeout_seconds_; }
  uint64_t next_incarnation() const { return next_incarnation_; }

 private:
  using Key = std::pair<v1::Role, uint32_t>;

  bool IsLost(const Member& member, double now) const;
  std::vector<const Member*> MembersOf(v1::Role role) const;
  int num(v1::Role role) const;
  bool IsFree(v1::Role role, uint32_t index) const;
  // Returns the index of the next member of the role.
  uint32_t NextIndex(v1::Role role) const;

  const double heartbeat_timeout_seconds_;
  uint64_t next_incarnation_;
  EventLog* const events_;
  const uint32_t groups_;
  std::map<Key, Member> members_;
  std::set<uint32_t> held_indices_;       // of former workers
  mutable uint32_t none_free_below_ = 0;  // all lower indices of workers are in use or held
  std::map<v1::Role, int> num_;           // members by role
  // The result of worker_incarnations(); empty if workers have changed since then.
  mutable std::optional<std::vector<uint64_t>> incarnations_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_CONTROL_MEMBERSHIP_H_
