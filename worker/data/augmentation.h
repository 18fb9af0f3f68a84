// Random crops and mirror images of training samples, drawn for each sample in each epoch.
//
// With crop_padding p, zeros (of what the network sees, after normalization) are put around the image, p on
// each side, and a window of its old size is cut out, at one of (2 p + 1)^2 places. With flip, half of the
// images are mirrored. What happens follows from (seed, sample id) alone, whoever loads the sample. The
// random part of an image that random_resized_crop draws is cut out when the image is decoded (resize.h).
//
// Shapes: an image is C x H x W. Threads: immutable.
#ifndef CATCHMENT_WORKER_DATA_AUGMENTATION_H_
#define CATCHMENT_WORKER_DATA_AUGMENTATION_H_

#include <cstdint>
#include <optional>

#include "common/base/random.h"
#include "common/job/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

class Augmentation {
 public:
  Augmentation(const v1::Augmentation& config, const SampleShape& shape, uint64_t seed);

  // Returns what determines the random part of an image that has a size of its own; absent: its center is the
  // sample.
  std::optional<uint64_t> CropSeed(uint64_t sample_id) const {
    return crops_ ? std::optional(Derive(crop_seed_, sample_id)) : std::nullopt;
  }

  // Returns true if samples are left unchanged.
  bool is_identity() const { return padding_ == 0 && !flip_; }

  // `out` is another image than `in`.
  void Apply(uint64_t sample_id, const float* in, float* out) const;

 private:
  int64_t padding_;
  bool flip_;
  SampleShape shape_;
  uint64_t seed_;
  bool crops_;
  uint64_t crop_seed_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_AUGMENTATION_H_
