// Tasks on several threads, which may add others.
#ifndef CATCHMENT_COMMON_BASE_TASK_POOL_H_
#define CATCHMENT_COMMON_BASE_TASK_POOL_H_

#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "common/base/mutex.h"

namespace catchment {

class TaskPool {
 public:
  using Task = std::function<absl::Status()>;

  // Appends a task. May be called by a task, on any thread.
  void Add(Task task);

  // Begins the tasks in their order, `threads` (at least 1) at a time, and waits for the end of all. After an
  // error it begins no more, and returns the first one.
  absl::Status Run(int threads);

 private:
  void Work();

  Mutex mu_;
  CondVar changed_;
  std::deque<Task> waiting_ ABSL_GUARDED_BY(mu_);
  int running_ ABSL_GUARDED_BY(mu_) = 0;
  absl::Status status_ ABSL_GUARDED_BY(mu_);
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_BASE_TASK_POOL_H_
