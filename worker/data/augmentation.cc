#include "worker/data/augmentation.h"

#include <algorithm>

namespace catchment {
namespace {

// Streams of the job's seed.
constexpr uint64_t kStream = 0x61756d656e74, kCropStream = 0x63726f7073;

}  // namespace

Augmentation::Augmentation(const v1::Augmentation& config, const SampleShape& shape, uint64_t seed)
    : padding_(config.crop_padding()),
      flip_(config.flip()),
      shape_(shape),
      seed_(Derive(seed, kStream)),
      crops_(config.has_random_resized_crop()),
      crop_seed_(Derive(seed, kCropStream)) {}

void Augmentation::Apply(uint64_t sample_id, const float* in, float* out) const {
  Random random(Derive(seed_, sample_id));
  // The position of the window in the image, from -padding to padding.
  const int64_t top = static_cast<int64_t>(random.Below(2 * padding_ + 1)) - padding_;
  const int64_t left = static_cast<int64_t>(random.Below(2 * padding_ + 1)) - padding_;
  const bool mirror = flip_ && random.Below(2) == 1;
  const int64_t width = shape_.width;
  const int64_t begin = std::clamp<int64_t>(-left, 0, width),
                end = std::clamp<int64_t>(width - left, 0, width);
  for (int64_t c = 0; c < shape_.channels; ++c, in += shape_.height * width) {
    for (int64_t y = 0; y < shape_.height; ++y, out += width) {
      std::fill_n(out, width, 0.0f);
      if (y + top < 0 || y + top >= shape_.height) continue;
      std::copy(in + (y + top) * width + left + begin, in + (y + top) * width + left + end, out + begin);
      if (mirror) std::reverse(out, out + width);
    }
  }
}

}  // namespace catchment
