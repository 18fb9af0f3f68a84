// A clock that stands until the test moves it.
#ifndef CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_
#define CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_

#include <atomic>

#include "common/base/clock.h"

namespace catchment {

class SettableClock final : public Clock {
 public:
  double Now() const override {
    if (step_ > 0) now_ = now_ + step_;
    return now_;
  }
  void Set(double now) { now_ = now; }
  void Advance(double seconds) { now_ = now_ + seconds; }
  // Lets so many seconds pass with each call of Now.
  void SetStep(double seconds) { step_ = seconds; }

 private:
  mutable std::atomic<double> now_{1000};
  std::atomic<double> step_{0};
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_BASE_SETTABLE_CLOCK_H_
