#include "worker/data/table/content.h"

#include <algorithm>

namespace catchment {

TableContent::TableContent(const SampleShape& shape, std::vector<Normalization> normalization)
    : shape_(shape), normalization_(std::move(normalization)) {}

void TableContent::Add(const TableRows& rows) {
  files_.push_back({size(), rows.size, rows.bytes, rows.floats, rows.mapped});
}

const TableContent::File& TableContent::FileOf(int64_t index) const {
  const auto after = std::upper_bound(files_.begin(), files_.end(), index,
                                      [](int64_t i, const File& file) { return i < file.begin; });
  return *(after - 1);
}

const uint8_t* TableContent::bytes(int64_t index) const {
  const File& file = FileOf(index);
  return file.bytes == nullptr ? nullptr : file.bytes.get() + (index - file.begin) * shape_.size();
}

const float* TableContent::floats(int64_t index) const {
  const File& file = FileOf(index);
  return file.floats == nullptr ? nullptr : file.floats.get() + (index - file.begin) * shape_.size();
}

absl::StatusOr<int64_t> TableContent::Read(int64_t index, std::optional<uint64_t>, float* out) const {
  if (const uint8_t* const from = bytes(index)) {
    std::copy_n(from, shape_.size(), out);
  } else {
    std::copy_n(floats(index), shape_.size(), out);
  }
  if (!normalization_.empty()) Normalize(out);
  const File& file = FileOf(index);
  if (!file.mapped) return 0;
  return shape_.size() * static_cast<int64_t>(file.bytes != nullptr ? 1 : sizeof(float));
}

void TableContent::Normalize(float* values) const {
  const auto count = static_cast<int64_t>(normalization_.size());
  // Values that follow each other and have one normalization.
  const bool by_channel = count == 1 || shape_.kind == SampleKind::kImage;
  const int64_t run = by_channel ? shape_.size() / count : 1;
  for (int64_t i = 0, n = 0; i < shape_.size(); n = n + 1 == count ? 0 : n + 1) {
    const auto [mean, deviation] = normalization_[n];
    for (const int64_t end = i + run; i < end; ++i)
      values[i] = static_cast<float>((values[i] - mean) / deviation);
  }
}

}  // namespace catchment
