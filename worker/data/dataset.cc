#include "worker/data/dataset.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace catchment {

Dataset::Dataset(const SampleShape& input_shape, int num_classes, const Normalization& normalization,
                 std::vector<uint8_t> pixels, std::vector<uint8_t> labels)
    : size_(static_cast<int64_t>(labels.size())),
      input_shape_(input_shape),
      num_classes_(num_classes),
      scale_(static_cast<float>(1 / (255.0 * normalization.standard_deviation))),
      offset_(static_cast<float>(-1.0 * normalization.mean / normalization.standard_deviation)),
      pixels_(std::move(pixels)),
      labels_(std::move(labels)) {
  CHECK_EQ(static_cast<int64_t>(pixels_.size()), size() * input_shape_.size());
  CHECK(std::all_of(labels_.begin(), labels_.end(), [=](int label) { return label < num_classes; }));
}

void Dataset::CopyInput(int64_t index, float* out) const {
  const int64_t values = input_shape_.size();
  const uint8_t* pixels = pixels_.data() + index * values;
  for (int64_t i = 0; i < values; ++i) out[i] = static_cast<float>(pixels[i]) * scale_ + offset_;
}

}  // namespace catchment
