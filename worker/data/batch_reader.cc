#include "worker/data/batch_reader.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "glog/logging.h"

namespace catchment {

BatchReader::BatchReader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order,
                         PinInputs pin_inputs)
    : dataset_(dataset),
      augmentation_(augmentation != nullptr && augmentation->is_identity() ? nullptr : augmentation),
      order_(std::move(order)),
      original_(augmentation_ != nullptr ? dataset->input_shape().size() : 0),
      pin_inputs_(std::move(pin_inputs)) {
  CHECK_EQ(order_.num_samples(), dataset->size());
}

absl::Status BatchReader::Read(BatchPlan plan, LoadedBatch* batch) {
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

void BatchReader::ResizeInputs(int64_t size, LoadedBatch* batch) {
  const bool grows = size > batch->inputs.capacity();
  if (grows) batch->pinned_inputs.reset();
  batch->inputs.Resize(size);
  if (grows && pin_inputs_) {
    batch->pinned_inputs = pin_inputs_({batch->inputs.data(), static_cast<size_t>(size)});
  }
}

void BatchReader::CopySample(int64_t index, uint64_t sample_id, float* out) {
  if (augmentation_ == nullptr) return dataset_->CopyInput(index, out);
  dataset_->CopyInput(index, original_.data());
  augmentation_->Apply(sample_id, original_.data(), out);
}

void BatchReader::CopySpan(const Span& span, int64_t at, LoadedBatch* batch) {
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

void BatchReader::NameSpan(const Span& span, int64_t at, LoadedBatch* batch) {
  for (uint64_t position = span.begin; position < span.end; ++position, ++at) {
    batch->sample_ids[at] = Derive(span.epoch, position);
  }
}

}  // namespace catchment
