// Samples in memory: images of bytes with a class each.
#ifndef CATCHMENT_WORKER_DATA_DATASET_H_
#define CATCHMENT_WORKER_DATA_DATASET_H_

#include <cstdint>
#include <vector>

#include "common/model_shapes.h"

namespace catchment {

// A pixel (0 to 255) is given to the network as (pixel / 255 - mean) / standard_deviation.
struct Normalization {
  float mean = 0;
  float standard_deviation = 1;
};

// Images are kept as bytes, a quarter of what floats take, and become floats when they are copied out. Or
// there are only so many samples, without content, for a model that looks at none: they take no memory.
//
// Shapes: a sample is input_shape(), C x H x W, channels slowest.
// Threads: immutable once made.
class Dataset {
 public:
  // `pixels` is all images one after another, `labels` the class of each, below num_classes.
  Dataset(const SampleShape& input_shape, int num_classes, const Normalization& normalization,
          std::vector<uint8_t> pixels, std::vector<uint8_t> labels);

  static Dataset WithoutContent(int64_t size) { return Dataset(size); }

  const SampleShape& input_shape() const { return input_shape_; }
  int num_classes() const { return num_classes_; }
  int64_t size() const { return size_; }
  bool has_content() const { return input_shape_.size() > 0; }

  // Of samples with content, 0 .. size()-1.
  int32_t label(int64_t index) const { return labels_[index]; }

  // Writes the input_shape().size() normalised values of a sample.
  void CopyInput(int64_t index, float* out) const;

 private:
  explicit Dataset(int64_t size) : size_(size) {}

  int64_t size_;
  SampleShape input_shape_;
  int num_classes_ = 0;
  // A pixel's value is pixel * scale_ + offset_.
  float scale_ = 0;
  float offset_ = 0;
  std::vector<uint8_t> pixels_;
  std::vector<uint8_t> labels_;
};

struct DataSets {
  Dataset train;
  Dataset test;
};

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DATASET_H_
