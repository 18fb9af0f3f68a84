// How long to wait before the next attempt: the longer, the more have failed.
#ifndef CATCHMENT_WORKER_GROWING_PAUSE_H_
#define CATCHMENT_WORKER_GROWING_PAUSE_H_

#include <algorithm>

namespace catchment {

// Units: seconds. Threads: not thread-safe.
class GrowingPause {
 public:
  // After one more failure.
  double Next() {
    const double pause = next_;
    next_ = std::min(kLongest, 2 * next_);
    return pause;
  }
  // After a success.
  void Reset() { next_ = kFirst; }

 private:
  static constexpr double kFirst = 0.1;
  static constexpr double kLongest = 5;

  double next_ = kFirst;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_GROWING_PAUSE_H_
