#include "worker/data/batch_loader.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/trace/recorder.h"
#include "glog/logging.h"

namespace catchment {

BatchLoader::BatchLoader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order,
                         Options options, NextPlan next_plan, const Clock* clock)
    : clock_(clock),
      reader_(dataset, augmentation, std::move(order),
              {.threads = options.threads, .clock = clock, .pin_inputs = std::move(options.pin_inputs)}),
      next_plan_(std::move(next_plan)),
      buffers_(options.depth) {
  CHECK_GE(options.depth, 1);
  for (LoadedBatch& buffer : buffers_) free_.push_back(&buffer);
  thread_ = std::thread([this] { Run(); });
}

BatchLoader::~BatchLoader() {
  {
    MutexLock lock(&mu_);
    stopping_ = true;
    changed_.Notify();
  }
  thread_.join();
}

absl::StatusOr<const LoadedBatch*> BatchLoader::Next() {
  const TraceScope scope("data");
  MutexLock lock(&mu_);
  if (lent_ != nullptr) {
    free_.push_back(std::exchange(lent_, nullptr));
    changed_.Notify();
  }
  WaitForReady();
  if (!ready_.empty()) {
    lent_ = ready_.front();
    ready_.pop_front();
  } else {
    RETURN_IF_ERROR(end_);
  }
  return lent_;
}

bool BatchLoader::HasNext() const {
  MutexLock lock(&mu_);
  return !ready_.empty() || ended_;
}

double BatchLoader::seconds_waited() const {
  MutexLock lock(&mu_);
  return seconds_waited_;
}

void BatchLoader::WaitForReady() {
  if (!ready_.empty() || ended_) return;
  const double start = clock_->Now();
  changed_.Wait(&mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !ready_.empty() || ended_; });
  seconds_waited_ += clock_->Now() - start;
}

LoadedBatch* BatchLoader::WaitForFree() {
  MutexLock lock(&mu_);
  changed_.Wait(&mu_, [this]() ABSL_NO_THREAD_SAFETY_ANALYSIS { return !free_.empty() || stopping_; });
  if (stopping_) return nullptr;
  LoadedBatch* batch = free_.back();
  free_.pop_back();
  return batch;
}

void BatchLoader::Run() {
  NameTracedThread("loader");
  while (LoadedBatch* batch = WaitForFree()) {
    const absl::StatusOr<bool> loaded = LoadNext(batch);
    MutexLock lock(&mu_);
    if (loaded.ok() && *loaded) {
      ready_.push_back(batch);
    } else {
      ended_ = true;
      end_ = loaded.status();
    }
    changed_.Notify();
    if (ended_) return;
  }
}

absl::StatusOr<bool> BatchLoader::LoadNext(LoadedBatch* batch) {
  ASSIGN_OR_RETURN(std::optional<BatchPlan> plan, next_plan_());
  if (!plan.has_value()) return false;
  const TraceScope scope("load");
  RETURN_IF_ERROR(reader_.Read(*std::move(plan), batch));
  return true;
}

}  // namespace catchment
