#include "server/control/lease_waiters.h"

#include <utility>

namespace catchment {

std::optional<ReadyReply> LeaseWaiters::Add(Waiter waiter, const JobLeases::Conditions& conditions) {
  overdue_ |= conditions != reviewed_;
  Waiter& place = waiters_[waiter.request.incarnation()];
  Waiter older = std::exchange(place, std::move(waiter));
  if (!older.respond) return std::nullopt;
  return ReadyReply{std::move(older.respond), std::move(older.reply)};
}

std::vector<ReadyReply> LeaseWaiters::Review(const JobLeases::Conditions& conditions, double now,
                                             const Ask& ask) {
  const bool changed = NeedReview(conditions);
  reviewed_ = conditions;
  overdue_ = false;
  std::vector<ReadyReply> replies;
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    Waiter& waiter = at->second;
    absl::StatusOr<v1::Reply> reply = changed ? ask(waiter.request) : waiter.reply;
    const v1::Lease& lease = reply.ok() ? reply->get_lease() : v1::Lease::default_instance();
    const bool waits = lease.state() == v1::Lease::WAIT && !lease.flush() && lease.save_state() == 0;
    if (waits && now < waiter.until) {
      ++at;
      continue;
    }
    replies.push_back({std::move(waiter.respond), std::move(reply)});
    at = waiters_.erase(at);
  }
  return replies;
}

std::vector<ReadyReply> LeaseWaiters::TakeAll(const Ask& ask) {
  std::vector<ReadyReply> replies;
  for (auto& [incarnation, waiter] : waiters_) {
    replies.push_back({std::move(waiter.respond), ask(waiter.request)});
  }
  waiters_.clear();
  return replies;
}

}  // namespace catchment
