#include "server/control/lease_waiters.h"

#include <utility>

namespace catchment {

std::optional<LeaseWaiters::Answer> LeaseWaiters::Add(Waiter waiter,
                                                      const Master::LeaseConditions& conditions) {
  overdue_ |= conditions != reviewed_;
  Waiter& place = waiters_[waiter.request.incarnation()];
  Waiter older = std::exchange(place, std::move(waiter));
  if (!older.respond) return std::nullopt;
  return Answer{std::move(older.respond), std::move(older.answer)};
}

std::vector<LeaseWaiters::Answer> LeaseWaiters::Review(const Master::LeaseConditions& conditions, double now,
                                                       const Ask& ask) {
  const bool changed = NeedReview(conditions);
  reviewed_ = conditions;
  overdue_ = false;
  std::vector<Answer> answers;
  for (auto at = waiters_.begin(); at != waiters_.end();) {
    Waiter& waiter = at->second;
    absl::StatusOr<v1::Lease> lease = changed ? ask(waiter.request) : waiter.answer;
    const bool waits =
        lease.ok() && lease->state() == v1::Lease::WAIT && !lease->flush() && lease->save_state() == 0;
    if (waits && now < waiter.until) {
      ++at;
      continue;
    }
    answers.push_back({std::move(waiter.respond), std::move(lease)});
    at = waiters_.erase(at);
  }
  return answers;
}

std::vector<LeaseWaiters::Answer> LeaseWaiters::TakeAll(const Ask& ask) {
  std::vector<Answer> answers;
  for (auto& [incarnation, waiter] : waiters_) {
    answers.push_back({std::move(waiter.respond), ask(waiter.request)});
  }
  waiters_.clear();
  return answers;
}

}  // namespace catchment
