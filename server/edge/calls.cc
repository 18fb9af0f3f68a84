#include "server/edge/calls.h"

#include "common/base/not_ready.h"

namespace catchment {

void RunCalls::Begin() {
  MutexLock lock(&mu_);
  open_ = true;
}

void RunCalls::End(double grace_seconds) {
  MutexLock lock(&mu_);
  open_ = false;
  closed_because_ = "this server is between two runs of its job and will start again shortly";
  const auto ended = [this] { return calls_.empty(); };
  if (changed_.WaitFor(&mu_, grace_seconds, ended)) return;
  for (grpc::ServerContext* const call : calls_) call->TryCancel();
  changed_.Wait(&mu_, ended);
}

absl::Status RunCall::Enter() {
  if (runs_ == nullptr) return absl::OkStatus();
  MutexLock lock(&runs_->mu_);
  if (!runs_->open_) return NotReady(runs_->closed_because_);
  runs_->calls_.insert(context_);
  entered_ = true;
  return absl::OkStatus();
}

RunCall::~RunCall() {
  if (!entered_) return;
  MutexLock lock(&runs_->mu_);
  runs_->calls_.erase(context_);
  if (runs_->calls_.empty()) runs_->changed_.Notify();
}

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
