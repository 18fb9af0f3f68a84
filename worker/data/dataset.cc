#include "worker/data/dataset.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "common/base/crc32c.h"
#include "common/base/random.h"
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

namespace {

constexpr int64_t kMostValues = 16 << 20;  // of a set that is read as a whole
constexpr int64_t kFewSamples = 64;        // of a larger one, which may be in files of a network

template <typename Value>
uint32_t ChecksumOf(const Value* values, int64_t count) {
  return Crc32c({reinterpret_cast<const char*>(values), static_cast<size_t>(count) * sizeof(Value)});
}

// Returns the checksum of a sample's stored values; 0 if it is not in memory.
uint32_t ChecksumOfValues(const Dataset& data, int64_t index) {
  const int64_t size = data.input_shape().size();
  if (const uint8_t* const bytes = data.content()->bytes(index)) return ChecksumOf(bytes, size);
  if (const float* const floats = data.content()->floats(index)) return ChecksumOf(floats, size);
  return 0;
}

uint32_t ChecksumOfTarget(const Dataset& data, int64_t index, std::vector<float>* targets) {
  if (!data.target().is_real()) return static_cast<uint32_t>(data.label(index));
  targets->resize(data.target().reals);
  data.CopyTargets(index, targets->data());
  return ChecksumOf(targets->data(), data.target().reals);
}

uint64_t Add(const Dataset& data, uint64_t checksum) {
  checksum = Derive(checksum, static_cast<uint64_t>(data.size()));
  if (!data.has_content()) return checksum;
  const bool is_small = data.size() * data.input_shape().size() <= kMostValues;
  const int64_t every = is_small ? 1 : std::max<int64_t>(1, data.size() / kFewSamples);
  std::vector<float> targets;
  for (int64_t i = 0; i < data.size(); ++i) {
    checksum = Derive(checksum, ChecksumOfTarget(data, i, &targets));
    if (i % every == 0) checksum = Derive(checksum, ChecksumOfValues(data, i));
  }
  return checksum;
}

}  // namespace

uint64_t DataChecksum(const DataSets& data) {
  return std::max<uint64_t>(1, Add(data.test, Add(data.train, data.class_names)));
}

}  // namespace catchment
