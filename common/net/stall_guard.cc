#include "common/net/stall_guard.h"

#include "absl/strings/str_cat.h"

namespace catchment {
namespace {

constexpr double kLookSeconds = 0.1;

}  // namespace

StallGuard::StallGuard(grpc::ClientContext* context, double seconds, const Clock* clock)
    : context_(*context), clock_(*clock), patience_(seconds), thread_([this] { Run(); }) {}

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
  patience_.Succeed();
}

absl::Status StallGuard::Explain(const absl::Status& status) {
  MutexLock lock(&mu_);
  if (!stalled_ || status.ok()) return status;
  return absl::DeadlineExceededError(
      absl::StrCat(status.message(), ": no progress for ", patience_.seconds(), " s"));
}

void StallGuard::Run() {
  MutexLock lock(&mu_);
  while (true) {
    patience_.Begin(clock_.Now(), kLookSeconds);
    if (changed_.WaitFor(&mu_, kLookSeconds, [this] { return ending_; })) return;
    if (!patience_.Fail(clock_.Now())) continue;
    stalled_ = true;
    context_.TryCancel();
    return;
  }
}

}  // namespace catchment
