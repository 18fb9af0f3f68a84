// A clock that stands until the test moves it, or moves by a step with each reading.
#ifndef CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_
#define CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_

#include <atomic>
#include <thread>

#include "common/base/clock.h"

namespace catchment {

// Begins at 1000 s. Threads: safe.
class SettableClock final : public Clock {
 public:
  explicit SettableClock(double step = 0) : step_(step) {}

  double Now() const override {
    const double step = step_;
    const double now = now_.fetch_add(step) + step;
    // A thread that sees the count moves the clock after this reading.
    if (std::this_thread::get_id() == watched_) ++readings_;
    return now;
  }
  void Advance(double seconds) { now_.fetch_add(seconds); }
  // Moves the clock by so many seconds with each call of Now.
  void SetStep(double seconds) { step_ = seconds; }

  // Counts the readings by the calling thread from here on. A thread reads the clock when it begins to wait.
  void WatchThisThread() {
    readings_ = 0;
    watched_ = std::this_thread::get_id();
  }
  int readings() const { return readings_; }

 private:
  mutable std::atomic<double> now_{1000};
  std::atomic<double> step_;
  std::atomic<std::thread::id> watched_{};
  mutable std::atomic<int> readings_{0};
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_
