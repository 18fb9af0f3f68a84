// Who takes part: workers and evaluators, each with an index (the lowest that is free among its role; a
// worker's becomes free only when FreeIndex says so) and an incarnation, a number that is never given twice.
// A member that is not heard of for lease_seconds is lost, and sooner where a server reports that its connection
// has broken; one that comes back registers anew, under another incarnation, and is as welcome as any other.
//
// Units: seconds. Threads: not thread-safe.
#ifndef CATCHMENT_SERVER_MASTER_MEMBERSHIP_H_
#define CATCHMENT_SERVER_MASTER_MEMBERSHIP_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "proto/master.pb.h"
#include "server/master/event_log.h"

namespace catchment {

struct Member {
  v1::Role role = v1::WORKER;
  uint32_t index = 0;
  uint64_t incarnation = 0;
  std::string host;
  uint32_t pid = 0;
  std::string device;
  double heard_at = 0;
  // Since then, and with that server, it has no connection, and has not been heard of.
  std::optional<double> disconnected_at;
  uint32_t disconnected_from = 0;
  double silence_limit = 0;    // in that state
  v1::Progress progress;       // the newest heard of
  v1::Lease lease;             // the last granted; number 0: none
  uint64_t granted_steps = 0;  // in all of its leases
  uint64_t granted_samples = 0;

  // "worker 2 (host:pid)"
  std::string name() const;
};

class Membership {
 public:
  // Events are told to `events`, which must outlive this.
  Membership(double lease_seconds, uint64_t next_incarnation, EventLog* events);

  Member* Register(const v1::RegisterRequest& request, double now);

  // The member, whose lease begins anew. NotFound for another incarnation, or none.
  absl::StatusOr<Member*> Hear(v1::Role role, uint32_t index, uint64_t incarnation, double now);
  absl::StatusOr<Member*> HearEvaluator(uint64_t incarnation, double now);

  bool HasEvaluator(uint64_t incarnation) const;
  // Null where there is none.
  const Member* Find(v1::Role role, uint32_t index, uint64_t incarnation) const;

  void Remove(v1::Role role, uint32_t index);
  // Lets a worker's index be used again, once no shard's report can be of the worker that had it.
  void FreeIndex(uint32_t worker) { held_indices_.erase(worker); }

  // A server reports that it has no connection with the worker any more. Where the worker is not heard of for
  // `silence_limit` seconds from now on it is lost; once it is heard of, only its lease counts again.
  void SetDisconnected(uint32_t worker, uint64_t incarnation, uint32_t server, double silence_limit,
                       double now);

  // Counts `seconds` of silence less for every member: the master could not have heard them.
  void ExtendDeadlines(double seconds, double now);

  // Removes and returns all that are lost.
  std::vector<Member> TakeExpired(double now);

  // By index.
  std::vector<const Member*> workers() const;
  // Their incarnations. Costs nothing while no worker comes or goes.
  const std::vector<uint64_t>& worker_incarnations() const;
  int num_workers() const { return num(v1::WORKER); }
  int num_evaluators() const { return num(v1::EVALUATOR); }
  bool empty() const { return members_.empty(); }

  double lease_seconds() const { return lease_seconds_; }
  uint64_t next_incarnation() const { return next_incarnation_; }

 private:
  using Key = std::pair<v1::Role, uint32_t>;

  bool IsLost(const Member& member, double now) const;
  int num(v1::Role role) const;
  uint32_t LowestFreeIndex(v1::Role role) const;

  const double lease_seconds_;
  uint64_t next_incarnation_;
  EventLog* const events_;
  std::map<Key, Member> members_;
  std::set<uint32_t> held_indices_;  // of workers that are members no more
  std::map<v1::Role, int> num_;      // of members
  // Of workers, by index; nothing where members have changed since it was made.
  mutable std::optional<std::vector<uint64_t>> incarnations_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_MASTER_MEMBERSHIP_H_
