#include "worker/data/batch_loader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/random.h"
#include "glog/logging.h"

namespace catchment {

BatchLoader::BatchLoader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order,
                         int depth, NextPlan next_plan, const Clock* clock, PinInputs pin_inputs)
    : dataset_(dataset),
      augmentation_(augmentation != nullptr && augmentation->is_identity() ? nullptr : augmentation),
      clock_(clock),
      order_(std::move(order)),
      original_(augmentation_ != nullptr ? dataset->input_shape().size() : 0),
      next_plan_(std::move(next_plan)),
      pin_inputs_(std::move(pin_inputs)),
      buffers_(depth) {
  CHECK_GE(depth, 1);
  CHECK_EQ(order_.num_samples(), dataset->size());
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
  MutexLock lock(&mu_);
  if (lent_ != nullptr) {
    free_.push_back(std::exchange(lent_, nullptr));
    changed_.Notify();
  }
  WaitForReady();
  if (!ready_.empty()) {
    lent_ = ready_.front();
    ready_.pop_front();
  } else if (!end_.ok()) {
    return end_;
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
  absl::StatusOr<std::optional<BatchPlan>> plan = next_plan_();
  if (!plan.ok()) return plan.status();
  if (!plan->has_value()) return false;
  const absl::Status loaded = Load(**std::move(plan), batch);
  if (!loaded.ok()) return loaded;
  return true;
}

absl::Status BatchLoader::Load(BatchPlan plan, LoadedBatch* batch) {
  const uint64_t end = static_cast<uint64_t>(dataset_->size());
  batch->samples = 0;
  for (const Span& span : plan.spans) {
    if (span.begin > span.end || span.end > end) {
      return absl::InvalidArgumentError(absl::StrCat("minibatch ", plan.tag, " asks for positions ",
                                                     span.begin, " to ", span.end, " of epoch ", span.epoch,
                                                     "; the training set has 0 to ", end));
    }
    batch->samples += static_cast<int64_t>(span.end - span.begin);
  }
  batch->tag = plan.tag;
  ResizeInputs(batch->samples * dataset_->input_shape().size(), batch);
  batch->targets.Resize(batch->samples * dataset_->target().reals);
  if (dataset_->has_content() && !dataset_->target().is_real()) batch->labels.resize(batch->samples);
  batch->sample_ids.resize(batch->samples);
  int64_t at = 0;
  for (const Span& span : plan.spans) {
    dataset_->has_content() ? CopySpan(span, at, batch) : NameSpan(span, at, batch);
    at += static_cast<int64_t>(span.end - span.begin);
  }
  batch->spans = std::move(plan.spans);
  return absl::OkStatus();
}

void BatchLoader::ResizeInputs(int64_t size, LoadedBatch* batch) {
  const bool grows = size > batch->inputs.capacity();
  if (grows) batch->pinned_inputs.reset();
  batch->inputs.Resize(size);
  if (grows && pin_inputs_) {
    batch->pinned_inputs = pin_inputs_({batch->inputs.data(), static_cast<size_t>(size)});
  }
}

void BatchLoader::CopySample(int64_t index, uint64_t sample_id, float* out) {
  if (augmentation_ == nullptr) return dataset_->CopyInput(index, out);
  dataset_->CopyInput(index, original_.data());
  augmentation_->Apply(sample_id, original_.data(), out);
}

void BatchLoader::CopySpan(const Span& span, int64_t at, LoadedBatch* batch) {
  const std::vector<uint32_t>& order = order_.order(span.epoch);
  const int64_t values = dataset_->input_shape().size();
  for (uint64_t position = span.begin; position < span.end; ++position, ++at) {
    const uint32_t index = order[position];
    if (dataset_->target().is_real()) {
      dataset_->CopyTargets(index, batch->targets.data() + at * dataset_->target().reals);
    } else {
      batch->labels[at] = dataset_->label(index);
    }
    batch->sample_ids[at] = Derive(span.epoch, index);
    CopySample(index, batch->sample_ids[at], batch->inputs.data() + at * values);
  }
}

void BatchLoader::NameSpan(const Span& span, int64_t at, LoadedBatch* batch) {
  for (uint64_t position = span.begin; position < span.end; ++position, ++at) {
    batch->sample_ids[at] = Derive(span.epoch, position);
  }
}

}  // namespace catchment
