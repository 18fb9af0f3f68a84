#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace catchment {

Dataset::Dataset(const SampleShape& input_shape, int num_classes,
                 std::unique_ptr<const SampleContent> content, std::vector<int32_t> labels)
    : size_(static_cast<int64_t>(labels.size())),
      input_shape_(input_shape),
      target_(num_classes),
      content_(std::move(content)),
      labels_(std::move(labels)) {
  CHECK(std::all_of(labels_.begin(), labels_.end(),
                    [=](int label) { return label >= 0 && label < num_classes; }));
}

Dataset Dataset::WithTargets(const SampleShape& input_shape, int num_targets,
                             std::unique_ptr<const SampleContent> content, std::vector<float> targets) {
  Dataset data(static_cast<int64_t>(targets.size()) / num_targets);
  CHECK_EQ(static_cast<int64_t>(targets.size()), data.size_ * num_targets);
  data.input_shape_ = input_shape;
  data.target_ = TargetShape::Real(num_targets);
  data.content_ = std::move(content);
  data.targets_ = std::move(targets);
  return data;
}

Dataset::Dataset(const SampleShape& input_shape, int num_classes, const Normalization& normalization,
                 std::vector<uint8_t> pixels, const std::vector<uint8_t>& labels)
    : Dataset(input_shape, num_classes, nullptr, std::vector<int32_t>(labels.begin(), labels.end())) {
  CHECK_EQ(static_cast<int64_t>(pixels.size()), size() * input_shape_.size());
  content_ = std::make_shared<ByteImages>(std::move(pixels), input_shape.height * input_shape.width,
                                          std::vector<Normalization>(input_shape.channels, normalization));
}

absl::StatusOr<int64_t> Dataset::ReadInput(int64_t index, std::optional<uint64_t> crop_seed,
                                           float* out) const {
  absl::StatusOr<int64_t> read = content_->Read(index, crop_seed, out);
  if (read.ok() || absl::IsInvalidArgument(read.status())) return read;
  return absl::DataLossError(read.status().message());
}

void Dataset::CopyInput(int64_t index, float* out) const {
  const absl::StatusOr<int64_t> read = ReadInput(index, std::nullopt, out);
  CHECK(read.ok()) << read.status();
}

}  // namespace catchment
