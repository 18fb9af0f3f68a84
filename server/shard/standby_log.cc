#include "server/shard/standby_log.h"

#include <algorithm>
#include <utility>

namespace catchment {

uint64_t StandbyLog::Append(Change change) {
  MutexLock lock(&mu_);
  const uint64_t number = ++last_;
  if (open_) {
    change.part.set_number(number);
    queue_.Push(std::move(change));
  }
  return number;
}

uint64_t StandbyLog::AppendState() {
  MutexLock lock(&mu_);
  if (queued_state_ > 0) return queued_state_;
  const uint64_t number = ++last_;
  if (open_) {
    Change change;
    change.part.set_number(number);
    change.state = true;
    queue_.Push(std::move(change));
    queued_state_ = number;
  }
  return number;
}

void StandbyLog::SetState(Describe describe) {
  WriterLock lock(&state_mu_);
  describe_ = std::move(describe);
}

std::vector<v1::StandbyPart> StandbyLog::DescribeState(bool whole) {
  ReaderLock lock(&state_mu_);
  return describe_ ? describe_(whole) : std::vector<v1::StandbyPart>();
}

StandbyLog::Wait StandbyLog::Await(uint64_t number, Then then) {
  if (IsAcknowledged(number)) return Wait::kAcknowledged;
  MutexLock lock(&mu_);
  if (IsAcknowledged(number)) return Wait::kAcknowledged;
  if (ended_) return Wait::kNever;
  waiting_.emplace(number, std::move(then));
  return Wait::kLater;
}

void StandbyLog::Flush() {
  ReaderLock lock(&sender_mu_);
  if (send_) send_();
}

void StandbyLog::SetSender(std::function<void()> send) {
  WriterLock lock(&sender_mu_);
  send_ = std::move(send);
}

void StandbyLog::End() {
  std::multimap<uint64_t, Then> rest;
  {
    MutexLock lock(&mu_);
    ended_ = true;
    open_ = false;
    ClearQueue();
    rest.swap(waiting_);
  }
  for (const auto& [number, then] : rest) then(false);
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return calling_ == 0; });
}

uint64_t StandbyLog::Open() {
  MutexLock lock(&mu_);
  open_ = !ended_;
  return last_;
}

void StandbyLog::Close() {
  MutexLock lock(&mu_);
  open_ = false;
  ClearQueue();
}

void StandbyLog::ClearQueue() {
  queue_.Clear();
  queued_state_ = 0;
}

std::optional<StandbyLog::Change> StandbyLog::Next() {
  MutexLock lock(&mu_);
  if (queue_.empty()) return std::nullopt;
  Change next = queue_.Pop();
  if (next.state) queued_state_ = 0;
  return next;
}

void StandbyLog::Acknowledge(uint64_t number) {
  std::vector<Then> due;
  {
    MutexLock lock(&mu_);
    if (ended_) return;
    acknowledged_ = std::max(acknowledged_.load(), number);
    const auto end = waiting_.upper_bound(number);
    for (auto waiting = waiting_.begin(); waiting != end; ++waiting)
      due.push_back(std::move(waiting->second));
    waiting_.erase(waiting_.begin(), end);
    ++calling_;
  }
  for (const Then& then : due) then(true);
  MutexLock lock(&mu_);
  --calling_;
  changed_.Notify();
}

}  // namespace catchment
