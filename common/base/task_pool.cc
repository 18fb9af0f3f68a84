#include "common/base/task_pool.h"

#include <thread>
#include <utility>
#include <vector>

namespace catchment {

void TaskPool::Add(Task task) {
  const MutexLock lock(&mu_);
  waiting_.push_back(std::move(task));
  changed_.Notify();
}

absl::Status TaskPool::Run(int threads) {
  {
    std::vector<std::jthread> others;
    for (int i = 1; i < threads; ++i) others.emplace_back([this] { Work(); });
    Work();
  }
  const MutexLock lock(&mu_);
  waiting_.clear();
  return std::exchange(status_, absl::OkStatus());
}

void TaskPool::Work() {
  for (;;) {
    Task task;
    {
      const MutexLock lock(&mu_);
      // A running task may add others.
      changed_.Wait(&mu_, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_) {
        return !waiting_.empty() || running_ == 0 || !status_.ok();
      });
      if (waiting_.empty() || !status_.ok()) return;
      task = std::move(waiting_.front());
      waiting_.pop_front();
      ++running_;
    }
    const absl::Status status = task();
    const MutexLock lock(&mu_);
    --running_;
    status_.Update(status);
    changed_.Notify();
  }
}

}  // namespace catchment
