#include "server/edge/calls.h"

namespace catchment {

void CallQueue::Enter() {
  MutexLock lock(&mu_);
  ++calls_;
}

void CallQueue::Leave() {
  MutexLock lock(&mu_);
  if (--calls_ == 0) changed_.Notify();
}

void CallQueue::WaitUntilEmpty() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this] { return calls_ == 0; });
}

}  // namespace catchment
