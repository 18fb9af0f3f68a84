#include "worker/data/batch_reader.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "glog/logging.h"

namespace catchment {

BatchReader::BatchReader(const Dataset* dataset, const Augmentation* augmentation, EpochOrder order,
                         Options options)
    : dataset_(dataset),
      augmentation_(augmentation),
      order_(std::move(order)),
      pin_inputs_(std::move(options.pin_inputs)),
      originals_(options.threads),
      threads_(options.threads, options.clock) {
  CHECK_EQ(order_.num_samples(), dataset->size());
  if (augmentation_ == nullptr || augmentation_->is_identity()) return;
  for (std::vector<float>& original : originals_) original.resize(dataset->input_shape().size());
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
  indices_.resize(batch->samples);
  int64_t at = 0;
  for (const Span& span : plan.spans) {
    NameSpan(span, at, batch);
    at += static_cast<int64_t>(span.end - span.begin);
  }
  batch->spans = std::move(plan.spans);
  if (!dataset_->has_content()) return absl::OkStatus();
  return threads_.Run(batch->samples, [&](int thread, int64_t i) { return ReadSample(thread, i, batch); });
}

void BatchReader::ResizeInputs(int64_t size, LoadedBatch* batch) {
  const bool grows = size > batch->inputs.capacity();
  if (grows) batch->pinned_inputs.reset();
  batch->inputs.Resize(size);
  if (grows && pin_inputs_) {
    batch->pinned_inputs = pin_inputs_({batch->inputs.data(), static_cast<size_t>(size)});
  }
}

void BatchReader::NameSpan(const Span& span, int64_t at, LoadedBatch* batch) {
  if (!dataset_->has_content()) {
    for (uint64_t position = span.begin; position < span.end; ++position)
      batch->sample_ids[at++] = Derive(span.epoch, position);
    return;
  }
  const std::vector<uint32_t>& order = order_.order(span.epoch);
  for (uint64_t position = span.begin; position < span.end; ++position, ++at) {
    indices_[at] = order[position];
    batch->sample_ids[at] = Derive(span.epoch, order[position]);
  }
}

absl::Status BatchReader::ReadSample(int thread, int64_t i, LoadedBatch* batch) {
  const int64_t index = indices_[i];
  if (dataset_->target().is_real()) {
    dataset_->CopyTargets(index, batch->targets.data() + i * dataset_->target().reals);
  } else {
    batch->labels[i] = dataset_->label(index);
  }
  const uint64_t id = batch->sample_ids[i];
  float* const input = batch->inputs.data() + i * dataset_->input_shape().size();
  std::vector<float>& original = originals_[thread];
  const auto crop_seed = augmentation_ == nullptr ? std::nullopt : augmentation_->CropSeed(id);
  ASSIGN_OR_RETURN(const int64_t bytes,
                   dataset_->ReadInput(index, crop_seed, original.empty() ? input : original.data()));
  bytes_read_ += bytes;
  if (!original.empty()) augmentation_->Apply(id, original.data(), input);
  return absl::OkStatus();
}

}  // namespace catchment
