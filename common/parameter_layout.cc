#include "common/parameter_layout.h"

#include <algorithm>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/random.h"

namespace catchment {
namespace {

// A shard begins at a multiple of this, one cache line of floats.
constexpr int64_t kAlignment = 16;

std::string Describe(const TensorSpec& tensor) {
  return absl::StrCat(tensor.name, " ", absl::StrJoin(tensor.shape, "x"));
}

uint64_t Fingerprint(const std::vector<TensorSpec>& tensors) {
  uint64_t hash = tensors.size();
  for (const TensorSpec& tensor : tensors) {
    for (char c : tensor.name) hash = Derive(hash, static_cast<uint8_t>(c));
    hash = Derive(hash, tensor.shape.size());
    for (int64_t dimension : tensor.shape) hash = Derive(hash, dimension);
  }
  return hash;
}

}  // namespace

int64_t TensorSpec::size() const {
  int64_t size = 1;
  for (int64_t dimension : shape) size *= dimension;
  return size;
}

absl::StatusOr<ParameterLayout> ParameterLayout::Create(std::vector<TensorSpec> tensors, int num_shards,
                                                        int64_t block_size) {
  if (tensors.empty()) return absl::InvalidArgumentError("the model has no parameters");
  if (block_size < 1) return absl::InvalidArgumentError("a block holds no values");
  ParameterLayout layout;
  absl::flat_hash_set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two tensors are called ", tensor.name));
    }
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 1; })) {
      return absl::InvalidArgumentError(absl::StrCat("tensor ", Describe(tensor), " has a dimension below 1"));
    }
    layout.tensor_ranges_.push_back({layout.size_, layout.size_ + tensor.size()});
    layout.size_ += tensor.size();
  }
  const int64_t groups = (layout.size_ + kAlignment - 1) / kAlignment;
  if (num_shards < 1 || num_shards > groups) {
    return absl::InvalidArgumentError(absl::StrCat("cannot split ", layout.size_, " parameters between ",
                                                   num_shards, " servers; use 1 to ", groups));
  }
  for (int s = 0; s < num_shards; ++s) {
    layout.shards_.push_back({std::min(layout.size_, groups * s / num_shards * kAlignment),
                              std::min(layout.size_, groups * (s + 1) / num_shards * kAlignment)});
  }
  layout.block_size_ = block_size;
  layout.fingerprint_ = Fingerprint(tensors);
  layout.tensors_ = std::move(tensors);
  return layout;
}

int ParameterLayout::num_blocks(int shard) const {
  return static_cast<int>((shards_[shard].size() + block_size_ - 1) / block_size_);
}

Range ParameterLayout::block(int shard, int block) const {
  const Range& range = shards_[shard];
  const int64_t begin = range.begin + block * block_size_;
  return {begin, std::min(range.end, begin + block_size_)};
}

std::string DescribeDifference(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& got) {
  for (size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    if (i >= expected.size()) return absl::StrCat("tensor ", i, ": expected no more, got ", Describe(got[i]));
    if (i >= got.size()) return absl::StrCat("tensor ", i, ": expected ", Describe(expected[i]), ", got no more");
    if (!(expected[i] == got[i])) {
      return absl::StrCat("tensor ", i, ": expected ", Describe(expected[i]), ", got ", Describe(got[i]));
    }
  }
  return "";
}

}  // namespace catchment
