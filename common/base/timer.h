// A clock on which one can sleep.
#ifndef CATCHMENT_COMMON_BASE_TIMER_H_
#define CATCHMENT_COMMON_BASE_TIMER_H_

#include <chrono>
#include <thread>

#include "common/base/clock.h"

namespace catchment {

class Timer : public Clock {
 public:
  // Blocks until Now() is at least `time`.
  virtual void SleepUntil(double time) = 0;
};

// Sleeps with the operating system, on the time of SteadyClock.
class SteadyTimer final : public Timer {
 public:
  double Now() const override { return clock_.Now(); }
  void SleepUntil(double time) override {
    using std::chrono::steady_clock;
    const auto since_epoch = std::chrono::ceil<steady_clock::duration>(std::chrono::duration<double>(time));
    std::this_thread::sleep_until(steady_clock::time_point(since_epoch));
  }

 private:
  SteadyClock clock_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_TIMER_H_
