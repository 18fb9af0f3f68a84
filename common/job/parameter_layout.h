// The division of the parameters: tensors -> one flat vector -> shards, one for each server -> blocks.
//
// The flat vector consists of the tensors in the model's order, each in row-major order. Shard s is a
// contiguous part of it; a block is a contiguous part of a shard, the unit of locks, of the wire, of
// exactly-once accounting and of versions. The boundaries are placed:
//   kAnywhere        Shards differ by at most 16 values, so servers are even by bytes, and a large tensor may
//                    be split. A block has `block_size` values, the last one of a shard fewer.
//   kBetweenTensors  For optimizers with norms of whole tensors. The largest shard is as small as whole
//                    tensors allow, and the others are as even as possible. A block contains consecutive
//                    tensors of at most `block_size` values together, or one larger tensor.
//
// Fragments (PseudoGradient.fragments in proto/job.proto) are parts of the flat vector that are exchanged one
// after another. They do not depend on the shards, so that a job has the same result with any number of
// servers, and each lies on all servers. A block belongs to one fragment.
//   kAnywhere        The vector is cut into chunks of min(2^18, size / (4 * fragments)) values, rounded up
//                    to 16. Chunk k belongs to fragment k mod fragments, and blocks also end where chunks do.
//   kBetweenTensors  The largest tensor that is left is added to the smallest fragment.
//
// Shapes: sizes and offsets count float32 values, not bytes.
// Threads: immutable after construction.
#ifndef CATCHMENT_COMMON_JOB_PARAMETER_LAYOUT_H_
#define CATCHMENT_COMMON_JOB_PARAMETER_LAYOUT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace catchment {

// The most values of a model: their bytes, times the vectors of a server and the workers of a job, are
// counted in 64 bits.
inline constexpr int64_t kMaxParameters = int64_t{1} << 40;

struct TensorSpec {
  std::string name;  // PyTorch's name, such as "conv1.weight"
  std::vector<int64_t> shape;

  // Returns the number of values; kMaxParameters + 1 if there are more.
  int64_t size() const;
  bool operator==(const TensorSpec&) const = default;
};

// The values begin .. end-1 of the flat vector.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;

  int64_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

enum class Cuts { kAnywhere, kBetweenTensors };

class ParameterLayout {
 public:
  // Errors: InvalidArgument for no tensors, a repeated name, a dimension below 1, more than kMaxParameters
  // values, no shards, more shards than there are groups of 16 values, or a shard of more than kMaxBlocks
  // blocks; with kBetweenTensors, more shards than tensors, or a tensor of more than kLargestWholeTensor
  // values; more fragments than groups of 16 values, or than tensors.
  static absl::StatusOr<ParameterLayout> Create(std::vector<TensorSpec> tensors, int num_shards,
                                                int64_t block_size, Cuts cuts = Cuts::kAnywhere,
                                                int fragments = 1);

  // 4 MiB below 2 GiB: as a block it must fit into one message, which gRPC limits to 2 GiB.
  static constexpr int64_t kLargestWholeTensor = (int64_t{1} << 29) - (int64_t{1} << 20);
  // A server has a record of each block, and a bit of it for each worker.
  static constexpr int64_t kMaxBlocks = int64_t{1} << 21;

  int64_t size() const { return size_; }
  const std::vector<TensorSpec>& tensors() const { return tensors_; }
  Range tensor(int index) const { return tensor_ranges_[index]; }

  int num_shards() const { return static_cast<int>(shards_.size()); }
  Range shard(int shard) const { return shards_[shard]; }

  Cuts cuts() const { return cuts_; }
  int64_t block_size() const { return block_size_; }
  // Returns the largest number of values in a block.
  int64_t most_in_block() const { return most_in_block_; }
  int num_blocks(int shard) const;
  // Returns the block's range of the flat vector.
  Range block(int shard, int block) const;
  // Returns the indices of the shard's blocks that contain some of these values.
  Range BlocksOf(int shard, Range values) const;
  // With kBetweenTensors: returns the end of each tensor of a block, relative to the block's first value.
  std::vector<int64_t> TensorEnds(int shard, int block) const;

  // With fragments, blocks have different sizes.
  bool has_equal_blocks() const { return block_ends_.empty(); }
  int num_fragments() const { return static_cast<int>(fragments_.size()); }
  // Returns the ranges of the flat vector that make a fragment, ascending.
  const std::vector<Range>& fragment(int fragment) const { return fragments_[fragment]; }
  // Returns the fragment of each block of the shard.
  const std::vector<uint32_t>& FragmentsOfBlocks(int shard) const { return fragments_of_blocks_[shard]; }

  // Returns a hash of names and shapes, which does not depend on the number of shards and the size of blocks.
  uint64_t fingerprint() const { return fingerprint_; }

 private:
  ParameterLayout() = default;
  absl::Status AddTensors(std::vector<TensorSpec> tensors);
  absl::Status CutAnywhere(int num_shards);
  absl::Status CutBetweenTensors(int num_shards);
  absl::Status MakeFragments(int fragments);
  int FragmentAt(int64_t value) const;
  std::vector<int64_t> ChunkedBlocks(Range shard) const;
  // Divides the tensors first .. last-1 into blocks; returns their ends.
  std::vector<int64_t> PackBlocks(int first, int last) const;

  std::vector<TensorSpec> tensors_;
  std::vector<Range> tensor_ranges_;
  std::vector<Range> shards_;
  // By shard, in the flat vector; empty if all blocks but the last of a shard have block_size_ values.
  std::vector<std::vector<int64_t>> block_ends_;
  std::vector<std::vector<Range>> fragments_;
  std::vector<std::vector<uint32_t>> fragments_of_blocks_;  // by shard and block
  int64_t chunk_ = 0;                                       // kAnywhere: values
  std::vector<int> fragments_of_tensors_;                   // kBetweenTensors
  int64_t size_ = 0;
  int64_t block_size_ = 0;
  int64_t most_in_block_ = 0;
  Cuts cuts_ = Cuts::kAnywhere;
  uint64_t fingerprint_ = 0;
};

// Describes the first tensor in which the two differ, such as "1.weight 32x1x3x3", in both; empty if they are
// equal.
std::string DescribeDifference(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& got);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_JOB_PARAMETER_LAYOUT_H_
