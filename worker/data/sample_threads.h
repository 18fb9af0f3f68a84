// Threads that divide the samples of a minibatch among them.
#ifndef CATCHMENT_WORKER_DATA_SAMPLE_THREADS_H_
#define CATCHMENT_WORKER_DATA_SAMPLE_THREADS_H_

#include <cstdint>
#include <thread>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "common/base/clock.h"
#include "common/base/mutex.h"

namespace catchment {

// Threads: Run is for one thread at a time, which is one of those that work; busy_seconds is for any.
class SampleThreads {
 public:
  // Does what belongs to one sample, on the thread with this number, 0 .. size()-1.
  using Task = absl::FunctionRef<absl::Status(int thread, int64_t sample)>;

  // `threads`: at least 1, the caller of Run included. `clock` measures busy_seconds and outlives the object;
  // null: nothing is measured.
  explicit SampleThreads(int threads, const Clock* clock = nullptr);
  ~SampleThreads();
  SampleThreads(const SampleThreads&) = delete;
  SampleThreads& operator=(const SampleThreads&) = delete;

  int size() const { return static_cast<int>(others_.size()) + 1; }

  // Runs the task for 0 .. samples-1, each once, in no order, and returns when all are done. Returns the
  // error of the lowest sample that has one; after an error, samples above it may be left out.
  absl::Status Run(int64_t samples, Task task) ABSL_LOCKS_EXCLUDED(mu_);

  // Returns the seconds that the threads have spent on tasks, summed over the threads.
  double busy_seconds() const ABSL_LOCKS_EXCLUDED(mu_);

 private:
  // One call of Run.
  struct Round {
    int64_t samples = 0;
    const Task* task = nullptr;
    int64_t next = 0;     // the lowest sample that no thread has begun
    int64_t failed = 0;   // the lowest sample with an error, if there is one
    absl::Status status;  // its error
    int working = 0;      // threads in it
    uint64_t number = 0;
  };

  // Runs on each thread other than that of Run.
  void Work(int thread) ABSL_LOCKS_EXCLUDED(mu_);
  // Takes samples of the round until none is left.
  void TakePart(int thread) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mu_);

  const Clock* const clock_;
  mutable Mutex mu_;
  CondVar changed_;
  Round round_ ABSL_GUARDED_BY(mu_);
  double busy_seconds_ ABSL_GUARDED_BY(mu_) = 0;
  bool ending_ ABSL_GUARDED_BY(mu_) = false;
  std::vector<std::thread> others_;  // last: they use all of the above
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_SAMPLE_THREADS_H_
