#include "common/net/stall_guard.h"

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

constexpr double kLookSeconds = 0.1;

}  // namespace

StallGuard::StallGuard(grpc::ClientContext* context, double seconds, const Clock* clock)
    : context_(*context), seconds_(seconds), clock_(*clock), moved_at_(clock->Now()), thread_([this] {
        Run();
      }) {}

StallGuard::~StallGuard() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  thread_.join();
}

void StallGuard::Progress() {
  MutexLock lock(&mu_);
  moved_at_ = clock_.Now();
}

absl::Status StallGuard::Explain(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!stalled_ || status.ok()) return status;
  return absl::DeadlineExceededError(absl::StrCat(status.message(), ": no progress for ", seconds_, " s"));
}

void StallGuard::Run() {
  MutexLock lock(&mu_);
  while (!changed_.WaitFor(&mu_, kLookSeconds, [this] { return ending_; })) {
    if (clock_.Now() - moved_at_ < seconds_) continue;
    stalled_ = true;
    context_.TryCancel();
    return;
  }
}

}  // namespace catchment
