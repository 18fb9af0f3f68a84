#include "worker/data/sample_threads.h"

#include <algorithm>

#include "common/trace/recorder.h"
#include "glog/logging.h"

namespace catchment {
namespace {

// The threads of a round take this many parts each, on average: small samples are not worth a lock each.
constexpr int64_t kParts = 8;

}  // namespace

SampleThreads::SampleThreads(int threads, const Clock* clock) : clock_(clock) {
  CHECK_GE(threads, 1);
  for (int i = 1; i < threads; ++i) others_.emplace_back([this, i] { Work(i); });
}

SampleThreads::~SampleThreads() {
  {
    MutexLock lock(&mu_);
    ending_ = true;
    changed_.Notify();
  }
  for (std::thread& other : others_) other.join();
}

absl::Status SampleThreads::Run(int64_t samples, Task task) {
  MutexLock lock(&mu_);
  round_ = {.samples = samples, .task = &task, .number = round_.number + 1};
  if (!others_.empty() && samples > 1) changed_.Notify();
  TakePart(0);
  changed_.Wait(&mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return round_.working == 0; });
  return round_.status;
}

double SampleThreads::busy_seconds() const {
  MutexLock lock(&mu_);
  return busy_seconds_;
}

void SampleThreads::Work(int thread) {
  NameTracedThread("loader");
  uint64_t done = 0;  // the number of the last round
  MutexLock lock(&mu_);
  while (true) {
    changed_.Wait(&mu_, [&]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return ending_ || round_.number > done; });
    if (ending_) return;
    done = round_.number;
    TakePart(thread);
  }
}

void SampleThreads::TakePart(int thread) {
  if (round_.next >= round_.samples || !round_.status.ok()) return;
  const double start = clock_ != nullptr ? clock_->Now() : 0;
  const int64_t part = std::max<int64_t>(1, round_.samples / (kParts * size()));
  const Task& task = *round_.task;
  ++round_.working;
  while (round_.next < round_.samples && round_.status.ok()) {
    int64_t sample = round_.next;
    const int64_t end = std::min(round_.samples, sample + part);
    round_.next = end;
    mu_.Unlock();
    absl::Status status;
    for (; sample < end; ++sample) {
      status = task(thread, sample);
      if (!status.ok()) break;
    }
    mu_.Lock();
    if (!status.ok() && (round_.status.ok() || sample < round_.failed)) {
      round_.failed = sample;
      round_.status = status;
    }
  }
  if (clock_ != nullptr) busy_seconds_ += clock_->Now() - start;
  if (--round_.working == 0) changed_.Notify();
}

}  // namespace catchment
