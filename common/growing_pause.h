// How long to wait before the next attempt of something that fails.
#ifndef CATCHMENT_COMMON_GROWING_PAUSE_H_
#define CATCHMENT_COMMON_GROWING_PAUSE_H_

#include <algorithm>

namespace catchment {

// Pauses that double from one failure to the next, up to a limit. Units: seconds. Threads: not thread-safe.
class GrowingPause {
 public:
  // Returns how long to wait after one more failure.
  double Next() {
    const double pause = next_;
    next_ = std::min(kLongest, 2 * next_);
    return pause;
  }
  // After a success: the next pause is the shortest again.
  void Reset() { next_ = kFirst; }

 private:
  static constexpr double kFirst = 0.1;
  static constexpr double kLongest = 5;

  double next_ = kFirst;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_GROWING_PAUSE_H_
