// Samples, each with a class or with real numbers as targets.
#ifndef CATCHMENT_WORKER_DATA_DATASET_H_
#define CATCHMENT_WORKER_DATA_DATASET_H_

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "common/job/model_shapes.h"
#include "worker/data/sample_content.h"

namespace catchment {

// There may be only a number of samples, without content, for a model that reads none: they need no
// memory.
//
// Shapes: a sample is input_shape(), row-major.
// Threads: immutable once made.
class Dataset {
 public:
  // `labels`: the class of each sample, below num_classes.
  Dataset(const SampleShape& input_shape, int num_classes, std::unique_ptr<const SampleContent> content,
          std::vector<int32_t> labels);
  // `targets`: num_targets real numbers of each sample.
  static Dataset WithTargets(const SampleShape& input_shape, int num_targets,
                             std::unique_ptr<const SampleContent> content, std::vector<float> targets);
  // Makes a data set from bytes, all images one after another, with one normalization for all channels.
  Dataset(const SampleShape& input_shape, int num_classes, const Normalization& normalization,
          std::vector<uint8_t> pixels, const std::vector<uint8_t>& labels);

  static Dataset WithoutContent(int64_t size) { return Dataset(size); }

  const SampleShape& input_shape() const { return input_shape_; }
  int num_classes() const { return target_.classes; }
  const TargetShape& target() const { return target_; }
  int64_t size() const { return size_; }
  bool has_content() const { return input_shape_.size() > 0; }

  // Returns the class of a sample. Only for samples with content and classes; index is 0 .. size()-1.
  int32_t label(int64_t index) const { return labels_[index]; }

  // Writes the target().reals real numbers of a sample.
  void CopyTargets(int64_t index, float* out) const {
    std::copy_n(targets_.data() + index * target_.reals, target_.reals, out);
  }

  // Writes the input_shape().size() values of a sample: SampleContent::Read. Errors: DataLoss and
  // InvalidArgument, whatever the code of the file's error is, which others would take for that of a
  // connection.
  absl::StatusOr<int64_t> ReadInput(int64_t index, std::optional<uint64_t> crop_seed, float* out) const;
  // Does the same for samples that are in memory.
  void CopyInput(int64_t index, float* out) const;

  // Returns null for samples without content.
  const SampleContent* content() const { return content_.get(); }

 private:
  explicit Dataset(int64_t size) : size_(size) {}

  int64_t size_;
  SampleShape input_shape_;
  TargetShape target_;
  std::shared_ptr<const SampleContent> content_;
  std::vector<int32_t> labels_;
  std::vector<float> targets_;
};

struct DataSets {
  Dataset train;
  Dataset test;
  uint64_t class_names = 0;  // a checksum of the classes' names in their order; 0: they have none
};

// Returns a number, never 0, that depends on the size of both sets, all classes and targets, and the stored
// values of samples: of all if a set has at most 16 million values, otherwise of 64 equally spaced ones.
// Images that are read from files whenever they are used are not read.
uint64_t DataChecksum(const DataSets& data);

}  // namespace catchment

#endif  // CATCHMENT_WORKER_DATA_DATASET_H_
