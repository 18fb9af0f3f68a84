#include "server/control/progress_watch.h"

#include <algorithm>
#include <cmath>

namespace catchment {
namespace {

// A worker without progress is reported after this number of heartbeat timeouts, or of its mean steps if that
// is longer.
constexpr double kTimeouts = 3;
constexpr double kSteps = 10;
// A worker is never considered stuck within the time of this number of its mean steps.
constexpr double kStuckSteps = 20;
// A worker has not held up the others if it worked for this number of times as long.
constexpr double kWorkedFactor = 10;
// A worker for which others wait is not considered stuck within this number of the longest steps of another.
constexpr double kOthersFactor = 10;
// Processes that are remembered, and the doublings of their limits.
constexpr size_t kMaxProcesses = 10'000;
constexpr uint32_t kMaxDoublings = 20;

bool Waits(const ProgressWatch::Work& work) { return work.trains && !work.to_do; }

}  // namespace

ProgressWatch::Verdict ProgressWatch::Observe(uint64_t incarnation, const Work& work, double now) {
  const auto [found, is_new] = workers_.try_emplace(incarnation);
  Watched& watched = found->second;
  const Work& last = watched.last;
  const bool progress = is_new || !work.to_do || work.granted > last.granted ||
                        work.reported > last.reported || work.answered > last.answered ||
                        work.states_saved.value_or(0) > last.states_saved.value_or(0);
  if (is_new) {
    watched.first_at = now;
    watched.answered_at_first = work.answered;
  } else if (progress) {
    watched.longest = std::max(watched.longest, now - watched.since);
  }
  if (progress) watched.since = now;
  if (is_new || work.answered > last.answered) watched.answered_at = now;
  if (!is_new) waiting_ -= Waits(last);
  waiting_ += Waits(work);
  watched.last = work;
  watched.awaited = work.to_do && work.trains && !work.states_saved && waiting_ > 0;
  const double seconds = now - watched.since;
  watched.verdict = Verdict::kFine;
  if (seconds >= std::max(kTimeouts * heartbeat_timeout_seconds_, kSteps * work.mean_step_seconds)) {
    watched.verdict = Verdict::kNoProgress;
  }
  if (const double limit = Limit(incarnation, work); limit > 0 && seconds >= limit)
    watched.verdict = Verdict::kStuck;
  return watched.verdict;
}

double ProgressWatch::Limit(uint64_t incarnation, const Work& work) const {
  if (stuck_seconds_ == 0) return 0;
  const auto found = workers_.find(incarnation);
  const bool awaited = found != workers_.end() && found->second.awaited;
  const auto stuck = times_stuck_.find(work.process);
  const double patience = awaited ? HoldUpSeconds(incarnation, found->second) : stuck_seconds_;
  const double doubled = patience * std::exp2(stuck == times_stuck_.end() ? 0 : stuck->second);
  return std::max(doubled, kStuckSteps * work.mean_step_seconds);
}

double ProgressWatch::HoldUpSeconds(uint64_t incarnation, const Watched& watched) const {
  double seconds = std::max(hold_up_seconds_, (watched.answered_at - watched.first_at) / kWorkedFactor);
  for (const auto& [other, others] : workers_) {
    if (seconds >= stuck_seconds_) break;
    if (other != incarnation && others.last.trains)
      seconds = std::max(seconds, kOthersFactor * others.longest);
  }
  return std::min(seconds, stuck_seconds_);
}

bool ProgressWatch::IsAwaited(uint64_t incarnation) const {
  const auto found = workers_.find(incarnation);
  return found != workers_.end() && found->second.awaited;
}

void ProgressWatch::Forget(uint64_t incarnation) {
  const auto found = workers_.find(incarnation);
  if (found == workers_.end()) return;
  waiting_ -= Waits(found->second.last);
  workers_.erase(found);
}

void ProgressWatch::NoteStuck(const std::string& process) {
  if (times_stuck_.size() >= kMaxProcesses) times_stuck_.clear();
  uint32_t& times = times_stuck_[process];
  times = std::min(times + 1, kMaxDoublings);
}

void ProgressWatch::Bar(const std::string& address, double seconds, uint64_t incarnation,
                        uint64_t next_incarnation, double now, bool awaited) {
  if (addresses_.size() >= kMaxProcesses) addresses_.clear();
  Address& from = addresses_[address];
  if (incarnation < from.counts_from) return;
  from.counts_from = next_incarnation;
  from.times = std::min(from.times + 1, kMaxDoublings);
  if (from.times < 2) return;
  const double factor = awaited ? 2 * kWorkedFactor : std::exp2(from.times - 1);
  from.barred_until = std::max(from.barred_until, now + seconds * factor);
}

double ProgressWatch::SecondsHeldUp(uint64_t incarnation, double heard_at, double now) const {
  const auto found = workers_.find(incarnation);
  if (found == workers_.end()) return now - heard_at;
  const Watched& watched = found->second;
  const double seconds = now - watched.answered_at, worked = watched.answered_at - watched.first_at;
  return watched.last.to_do && worked < kWorkedFactor * seconds ? seconds : 0;
}

double ProgressWatch::BarredFor(const std::string& address, double now) const {
  const auto found = addresses_.find(address);
  return found == addresses_.end() ? 0 : std::max(0.0, found->second.barred_until - now);
}

double ProgressWatch::SecondsPerAnswer(uint64_t incarnation) const {
  const auto found = workers_.find(incarnation);
  if (found == workers_.end()) return 0;
  const Watched& watched = found->second;
  const uint64_t answers = watched.last.answered - watched.answered_at_first;
  return answers == 0 ? 0 : (watched.answered_at - watched.first_at) / static_cast<double>(answers);
}

double ProgressWatch::SecondsWithout(uint64_t incarnation, double now) const {
  const auto found = workers_.find(incarnation);
  if (found == workers_.end() || found->second.verdict == Verdict::kFine) return 0;
  return now - found->second.since;
}

void ProgressWatch::Extend(double seconds) {
  for (auto& [incarnation, watched] : workers_) {
    watched.since += seconds;
    watched.first_at += seconds;
    watched.answered_at += seconds;
  }
}

}  // namespace catchment
