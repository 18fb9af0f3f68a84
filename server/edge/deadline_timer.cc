#include "server/edge/deadline_timer.h"

#include <algorithm>
#include <vector>

namespace catchment {
namespace {

// The longest single wait; a longer one is made of several.
constexpr double kLongestWait = 3600;

}  // namespace

DeadlineTimer::DeadlineTimer(Shard* shard, StandbyLog* log)
    : shard_(*shard), log_(log), thread_([this] { Run(); }) {}

DeadlineTimer::~DeadlineTimer() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

void DeadlineTimer::Look() {
  const double next = shard_.NextDeadline();
  if (next == Deadlines::kNever) return;
  MutexLock lock(&mu_);
  if (next >= next_) return;
  next_ = next;
  changed_.Notify();
}

void DeadlineTimer::Run() {
  while (Await()) {
    Tick();
    Look();
  }
}

bool DeadlineTimer::Await() {
  MutexLock lock(&mu_);
  while (!ending_) {
    const double until = next_;
    const double seconds = until - clock_.Now();
    if (seconds <= 0) {
      next_ = Deadlines::kNever;
      return true;
    }
    changed_.WaitFor(&mu_, std::min(seconds, kLongestWait), [&] { return ending_ || next_ < until; });
  }
  return false;
}

void DeadlineTimer::Tick() {
  std::vector<Answer> answers;
  shard_.Tick(clock_.Now(), &answers);
  if (log_ != nullptr) log_->Flush();
  Deliver(&answers);
}

}  // namespace catchment
