// Exponentially growing pauses between attempts.
#ifndef CATCHMENT_COMMON_GROWING_PAUSE_H_
#define CATCHMENT_COMMON_GROWING_PAUSE_H_

#include <algorithm>

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
  // Notes a success: the next pause is the shortest one.
  void Reset() { next_ = kFirst; }

 private:
  static constexpr double kFirst = 0.1;
  static constexpr double kLongest = 5;

  double next_ = kFirst;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_GROWING_PAUSE_H_
