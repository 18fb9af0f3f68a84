// A clock for tests of timeouts: some seconds pass at each reading.
#ifndef CATCHMENT_TESTS_COMMON_BASE_HASTY_CLOCK_H_
#define CATCHMENT_TESTS_COMMON_BASE_HASTY_CLOCK_H_

#include <atomic>

#include "common/base/clock.h"

namespace catchment {

class HastyClock final : public Clock {
 public:
  explicit HastyClock(int seconds) : step_(seconds) {}
  double Now() const override { return now_ += step_; }

 private:
  const int step_;
  mutable std::atomic<int> now_{1000};
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_BASE_HASTY_CLOCK_H_
