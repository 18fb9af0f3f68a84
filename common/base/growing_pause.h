// Exponentially growing pauses between attempts.
#ifndef CATCHMENT_COMMON_BASE_GROWING_PAUSE_H_
#define CATCHMENT_COMMON_BASE_GROWING_PAUSE_H_

#include <algorithm>
#include <string>

namespace catchment {

// The pauses double with each failure, up to a limit. Units: seconds. Threads: not thread-safe.
class GrowingPause {
 public:
  // Returns the pause after another failure.
  double Next() {
    const double pause = next_;
    next_ = std::min(kLongest, 2 * next_);
    return pause;
  }
  // Returns the pause after a failure for this reason. The first pause after another reason is the shortest
  // one.
  double Next(const std::string& reason) {
    if (reason != reason_) Reset();
    reason_ = reason;
    return Next();
  }
  // Notes a success: the next pause is the shortest one.
  void Reset() { next_ = kFirst; }

 private:
  static constexpr double kFirst = 0.1;
  static constexpr double kLongest = 5;

  double next_ = kFirst;
  std::string reason_;  // of the last failure
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_GROWING_PAUSE_H_
