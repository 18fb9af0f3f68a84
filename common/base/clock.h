// The source of time. Tests and simulations replace it.
#ifndef CATCHMENT_COMMON_BASE_CLOCK_H_
#define CATCHMENT_COMMON_BASE_CLOCK_H_

#include <chrono>

namespace catchment {

// Now() returns the seconds since a fixed time and never decreases. Thread-safe.
class Clock {
 public:
  virtual ~Clock() = default;
  virtual double Now() const = 0;
};

class SteadyClock final : public Clock {
 public:
  double Now() const override {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  }
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_CLOCK_H_
