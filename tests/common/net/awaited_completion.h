// An operation whose end a test awaits.
#ifndef CATCHMENT_TESTS_COMMON_NET_AWAITED_COMPLETION_H_
#define CATCHMENT_TESTS_COMMON_NET_AWAITED_COMPLETION_H_

#include <optional>
#include <utility>

#include "common/base/mutex.h"
#include "common/net/completion.h"

namespace catchment {

class AwaitedCompletion final : public Completion {
 public:
  void Done(bool ok) override {
    MutexLock lock(&mu_);
    ok_ = ok;
    changed_.Notify();
  }
  // Returns true if the operation has succeeded. The object can be used for another one then.
  bool Await() {
    MutexLock lock(&mu_);
    changed_.Wait(&mu_, [this] { return ok_.has_value(); });
    return *std::exchange(ok_, std::nullopt);
  }
  bool IsDone() {
    MutexLock lock(&mu_);
    return ok_.has_value();
  }

 private:
  Mutex mu_;
  CondVar changed_;
  std::optional<bool> ok_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_TESTS_COMMON_NET_AWAITED_COMPLETION_H_
