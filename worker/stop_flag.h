// Tells every thread of a worker that it is over, and wakes those that pause.
#ifndef CATCHMENT_WORKER_STOP_FLAG_H_
#define CATCHMENT_WORKER_STOP_FLAG_H_

#include "common/base/mutex.h"

namespace catchment {

// Threads: safe.
class StopFlag {
 public:
  void Set() {
    MutexLock lock(&mu_);
    set_ = true;
    changed_.Notify();
  }
  void Clear() {
    MutexLock lock(&mu_);
    set_ = false;
  }
  bool IsSet() const {
    MutexLock lock(&mu_);
    return set_;
  }
  // Returns early, with true, when the flag is set.
  bool Pause(double seconds) const {
    MutexLock lock(&mu_);
    return changed_.WaitFor(&mu_, seconds, [this] { return set_; });
  }

 private:
  mutable Mutex mu_;
  mutable CondVar changed_;
  bool set_ ABSL_GUARDED_BY(mu_) = false;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_STOP_FLAG_H_
