// Random crops and mirror images of training samples, drawn for each sample in each epoch.
//
// With crop_padding p, zeros (of what the network sees, after normalization) are put around the image, p on
// each side, and a window of its old size is cut out, at one of (2 p + 1)^2 places. With flip, half of the
// images are mirrored. What happens follows from (seed, sample id) alone, whoever loads the sample.
//
// Shapes: an image is C x H x W. Threads: immutable.
#ifndef CATCHMENT_WORKER_DATA_AUGMENTATION_H_
#define CATCHMENT_WORKER_DATA_AUGMENTATION_H_

#include <cstdint>

#include "common/job/model_shapes.h"
#include "proto/job.pb.h"

namespace catchment {

class Augmentation {
 public:
  Augmentation(const v1::Augmentation& config, const SampleShape& shape, uint64_t seed);

  // Returns true if images are left unchanged.
  bool is_identity() const { return padding_ == 0 && !flip_; }

  // `out` is another image than `in`.
  void Apply(uint64_t sample_id, const float* in, float* out) const;

 private:
  int64_t padding_;
  bool flip_;
  SampleShape shape_;
  uint64_t seed_;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_AUGMENTATION_H_
