// Where every parameter lives: tensors -> one flat vector -> shards, one a server -> blocks.
//
// The flat vector is the tensors one after another, each in row-major order, in the model's order. Shard s is
// a contiguous part of it; the parts differ by at most 16 values, so servers are even by bytes, and a large
// tensor may be split. A block is `block_size` values of one shard, the last one of a shard fewer; it is the
// unit of locks, of the wire, of exactly-once accounting and of versions.
//
// Shapes: sizes and offsets count float32 values, not bytes.
// Threads: immutable once made.
#ifndef CATCHMENT_COMMON_PARAMETER_LAYOUT_H_
#define CATCHMENT_COMMON_PARAMETER_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

struct TensorSpec {
  std::string name;  // PyTorch's: "conv1.weight"
  std::vector<int64_t> shape;

  int64_t size() const;
  bool operator==(const TensorSpec&) const = default;
};

// Values begin .. end-1 of the flat vector.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

class ParameterLayout {
 public:
  // InvalidArgument for no tensors, a name given twice, a dimension below 1, no shards, or more shards than
  // there are groups of 16 values.
  static absl::StatusOr<ParameterLayout> Create(std::vector<TensorSpec> tensors, int num_shards,
                                                int64_t block_size);

  int64_t size() const { return size_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  Range tensor(int index) const { return tensor_ranges_[index]; }

  int num_shards() const { return static_cast<int>(shards_.size()); }
  Range shard(int shard) const { return shards_[shard]; }

  int64_t block_size() const { return block_size_; }
  int num_blocks(int shard) const;
  // In the flat vector.
  Range block(int shard, int block) const;

  // Names and shapes, hashed; the same for any number of shards and any size of block.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  ParameterLayout() = default;

  std::vector<TensorSpec> tensors_;
  std::vector<Range> tensor_ranges_;
  std::vector<Range> shards_;
  int64_t size_ = 0;
  int64_t block_size_ = 0;
  uint64_t fingerprint_ = 0;
};

// "1.weight 32x1x3x3" of the first tensor in which the two differ, in words that name both; empty when equal.
std::string DescribeDifference(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& got);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PARAMETER_LAYOUT_H_
