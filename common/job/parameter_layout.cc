#include "common/job/parameter_layout.h"

#include <algorithm>
#include <limits>
#include <numeric>

#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/random.h"
#include "common/base/rounding.h"
#include "common/base/status_macros.h"

namespace catchment {
namespace {

// A shard begins at a multiple of this, one cache line of floats.
constexpr int64_t kAlignment = 16;

constexpr int64_t kLargestChunk = int64_t{1} << 18;

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

// Returns the smallest size of the largest part if all tensors are divided into `parts` parts, without
// cutting a tensor.
int64_t SmallestLargestPart(const std::vector<Range>& tensors, int parts) {
  const auto fits = [&](int64_t most) {
    int needed = 1;
    int64_t begin = 0;
    for (const Range& tensor : tensors) {
      if (tensor.end - begin <= most) continue;
      begin = tensor.begin;
      ++needed;
    }
    return needed <= parts;
  };
  int64_t low = 0, high = tensors.back().end;
  for (const Range& tensor : tensors) low = std::max(low, tensor.size());
  while (low < high) {
    const int64_t middle = low + (high - low) / 2;
    if (fits(middle)) {
      high = middle;
    } else {
      low = middle + 1;
    }
  }
  return low;
}

// Splits consecutive tensors into nonempty parts. Among the splits with the smallest largest part, finds the
// one with the smallest sum of squared sizes, by dynamic programming: least[t] is that sum over the first t
// tensors. Returns, for each part, the index after its last tensor.
std::vector<int> EvenCuts(const std::vector<Range>& tensors, int parts) {
  const int64_t most = SmallestLargestPart(tensors, parts);
  const int n = static_cast<int>(tensors.size());
  std::vector<double> least(n + 1, std::numeric_limits<double>::infinity());
  least[0] = 0;
  // first[part][t]: the first tensor of the last part, in the best split of the first t tensors into part + 1
  // parts.
  std::vector<std::vector<int>> first(parts, std::vector<int>(n + 1, 0));
  for (int part = 0; part < parts; ++part) {
    std::vector<double> next(n + 1, std::numeric_limits<double>::infinity());
    for (int end = part + 1; end <= n; ++end) {
      for (int begin = end - 1; begin >= part; --begin) {
        const int64_t size = tensors[end - 1].end - tensors[begin].begin;
        if (size > most) break;
        const double sum = least[begin] + static_cast<double>(size) * static_cast<double>(size);
        if (sum >= next[end]) continue;
        next[end] = sum;
        first[part][end] = begin;
      }
    }
    least = std::move(next);
  }
  std::vector<int> ends(parts);
  for (int part = parts - 1, end = n; part >= 0; end = first[part][end], --part) ends[part] = end;
  return ends;
}

// Returns the part of each tensor if the largest tensor that is left is always added to the smallest part.
// Of equal ones the first is chosen.
std::vector<int> SmallestFirst(const std::vector<Range>& tensors, int parts) {
  std::vector<int> order(tensors.size()), chosen(tensors.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return tensors[a].size() > tensors[b].size(); });
  std::vector<int64_t> sizes(parts, 0);
  for (const int tensor : order) {
    const auto smallest = std::min_element(sizes.begin(), sizes.end());
    *smallest += tensors[tensor].size();
    chosen[tensor] = static_cast<int>(smallest - sizes.begin());
  }
  return chosen;
}

}  // namespace

int64_t TensorSpec::size() const {
  int64_t size = 1;
  for (int64_t dimension : shape) {
    if (dimension > 0 && size > kMaxParameters / dimension) return kMaxParameters + 1;
    size *= dimension;
  }
  return size;
}

absl::StatusOr<ParameterLayout> ParameterLayout::Create(std::vector<TensorSpec> tensors, int num_shards,
                                                        int64_t block_size, Cuts cuts, int fragments) {
  if (tensors.empty()) return absl::InvalidArgumentError("the model has no parameters");
  if (block_size < 1) return absl::InvalidArgumentError("the block size must be at least 1");
  ParameterLayout layout;
  layout.block_size_ = layout.most_in_block_ = block_size;
  layout.cuts_ = cuts;
  RETURN_IF_ERROR(layout.AddTensors(std::move(tensors)));
  RETURN_IF_ERROR(layout.MakeFragments(fragments));
  RETURN_IF_ERROR(cuts == Cuts::kAnywhere ? layout.CutAnywhere(num_shards)
                                          : layout.CutBetweenTensors(num_shards));
  for (int s = 0; s < num_shards; ++s) {
    std::vector<uint32_t>& of_blocks = layout.fragments_of_blocks_.emplace_back();
    for (int b = 0; b < layout.num_blocks(s); ++b)
      of_blocks.push_back(layout.FragmentAt(layout.block(s, b).begin));
  }
  return layout;
}

absl::Status ParameterLayout::AddTensors(std::vector<TensorSpec> tensors) {
  absl::flat_hash_set<std::string> names;
  for (const TensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second) {
      return absl::InvalidArgumentError(absl::StrCat("two tensors have the name ", tensor.name));
    }
    if (std::any_of(tensor.shape.begin(), tensor.shape.end(), [](int64_t d) { return d < 1; })) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", Describe(tensor), " has a dimension below 1"));
    }
    tensor_ranges_.push_back({size_, size_ + tensor.size()});
    size_ += tensor.size();
    if (size_ > kMaxParameters) {
      return absl::InvalidArgumentError(
          absl::StrCat("the model has more than ", kMaxParameters, " parameters (2^40), which is the most"));
    }
  }
  fingerprint_ = Fingerprint(tensors);
  tensors_ = std::move(tensors);
  return absl::OkStatus();
}

absl::Status ParameterLayout::MakeFragments(int fragments) {
  const bool anywhere = cuts_ == Cuts::kAnywhere;
  const int64_t most =
      anywhere ? std::max<int64_t>(1, size_ / kAlignment) : static_cast<int64_t>(tensors_.size());
  if (fragments < 1 || fragments > most) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot divide ",
                     anywhere ? absl::StrCat(size_, " parameters")
                              : absl::StrCat(tensors_.size(), " tensors, which stay whole,"),
                     " into ", fragments, " fragments; use 1 to ", most));
  }
  fragments_.resize(fragments);
  if (fragments == 1) {
    fragments_[0] = {{0, size_}};
  } else if (anywhere) {
    const int64_t even = size_ / (int64_t{4} * fragments);
    chunk_ = static_cast<int64_t>(RoundUp(std::clamp<int64_t>(even, 1, kLargestChunk), kAlignment));
    for (int64_t begin = 0; begin < size_; begin += chunk_)
      fragments_[FragmentAt(begin)].push_back({begin, std::min(size_, begin + chunk_)});
  } else {
    fragments_of_tensors_ = SmallestFirst(tensor_ranges_, fragments);
    for (size_t t = 0; t < tensors_.size(); ++t)
      fragments_[fragments_of_tensors_[t]].push_back(tensor_ranges_[t]);
  }
  return absl::OkStatus();
}

int ParameterLayout::FragmentAt(int64_t value) const {
  if (chunk_ > 0) return static_cast<int>(value / chunk_ % num_fragments());
  if (fragments_of_tensors_.empty()) return 0;
  const auto tensor =
      std::upper_bound(tensor_ranges_.begin(), tensor_ranges_.end(), value,
                       [](int64_t position, const Range& range) { return position < range.end; });
  return fragments_of_tensors_[tensor - tensor_ranges_.begin()];
}

std::vector<int64_t> ParameterLayout::ChunkedBlocks(Range shard) const {
  std::vector<int64_t> ends;
  for (int64_t begin = shard.begin; begin < shard.end; begin = ends.back())
    ends.push_back(std::min({begin + block_size_, (begin / chunk_ + 1) * chunk_, shard.end}));
  return ends;
}

absl::Status ParameterLayout::CutAnywhere(int num_shards) {
  const int64_t groups = (size_ + kAlignment - 1) / kAlignment;
  if (num_shards < 1 || num_shards > groups) {
    return absl::InvalidArgumentError(absl::StrCat("cannot split ", size_, " parameters between ", num_shards,
                                                   " servers; use 1 to ", groups));
  }
  const int64_t most = CeilDivide(groups, num_shards) * kAlignment;  // values of a shard
  if (most > kMaxBlocks * block_size_) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot cut the ", most, " parameters of a server into blocks of ", block_size_,
                     ": that is more than ", kMaxBlocks, " blocks; use a block_kib of at least ",
                     CeilDivide(most * sizeof(float), kMaxBlocks * 1024), ", or more servers"));
  }
  for (int s = 0; s < num_shards; ++s) {
    shards_.push_back({std::min(size_, groups * s / num_shards * kAlignment),
                       std::min(size_, groups * (s + 1) / num_shards * kAlignment)});
    if (chunk_ > 0) block_ends_.push_back(ChunkedBlocks(shards_.back()));
  }
  return absl::OkStatus();
}

absl::Status ParameterLayout::CutBetweenTensors(int num_shards) {
  if (num_shards < 1 || num_shards > static_cast<int64_t>(tensors_.size())) {
    return absl::InvalidArgumentError(absl::StrCat("cannot split ", tensors_.size(),
                                                   " tensors, which stay whole, between ", num_shards,
                                                   " servers; use 1 to ", tensors_.size()));
  }
  for (const TensorSpec& tensor : tensors_) {
    most_in_block_ = std::max(most_in_block_, tensor.size());
    if (tensor.size() <= kLargestWholeTensor) continue;
    return absl::InvalidArgumentError(absl::StrCat("tensor ", Describe(tensor), " has ", tensor.size(),
                                                   " values, and one that stays whole has at most ",
                                                   kLargestWholeTensor, "; use smaller tensors"));
  }
  int first = 0;
  for (const int last : EvenCuts(tensor_ranges_, num_shards)) {
    shards_.push_back({tensor_ranges_[first].begin, tensor_ranges_[last - 1].end});
    block_ends_.push_back(PackBlocks(first, last));
    first = last;
  }
  return absl::OkStatus();
}

std::vector<int64_t> ParameterLayout::PackBlocks(int first, int last) const {
  std::vector<int64_t> ends;
  int64_t begin = tensor_ranges_[first].begin;
  for (int t = first; t + 1 < last; ++t) {
    const bool together =
        fragments_of_tensors_.empty() || fragments_of_tensors_[t] == fragments_of_tensors_[t + 1];
    if (together && tensor_ranges_[t + 1].end - begin <= block_size_) continue;
    begin = tensor_ranges_[t].end;
    ends.push_back(begin);
  }
  ends.push_back(tensor_ranges_[last - 1].end);
  return ends;
}

int ParameterLayout::num_blocks(int shard) const {
  if (!has_equal_blocks()) return static_cast<int>(block_ends_[shard].size());
  return static_cast<int>((shards_[shard].size() + block_size_ - 1) / block_size_);
}

Range ParameterLayout::block(int shard, int block) const {
  const Range& range = shards_[shard];
  if (!has_equal_blocks()) {
    const std::vector<int64_t>& ends = block_ends_[shard];
    return {block == 0 ? range.begin : ends[block - 1], ends[block]};
  }
  const int64_t begin = range.begin + block * block_size_;
  return {begin, std::min(range.end, begin + block_size_)};
}

Range ParameterLayout::BlocksOf(int shard, Range values) const {
  const Range& range = shards_[shard];
  const Range part = {std::max(values.begin, range.begin), std::min(values.end, range.end)};
  if (part.size() <= 0) return {0, 0};
  if (!has_equal_blocks()) {
    const std::vector<int64_t>& ends = block_ends_[shard];
    const auto index = [&](int64_t value) {
      return std::upper_bound(ends.begin(), ends.end(), value) - ends.begin();
    };
    return {index(part.begin), index(part.end - 1) + 1};
  }
  return {(part.begin - range.begin) / block_size_, (part.end - 1 - range.begin) / block_size_ + 1};
}

std::vector<int64_t> ParameterLayout::TensorEnds(int shard, int block) const {
  const Range range = this->block(shard, block);
  std::vector<int64_t> ends;
  for (const Range& tensor : tensor_ranges_) {
    if (tensor.begin >= range.begin && tensor.end <= range.end) ends.push_back(tensor.end - range.begin);
  }
  return ends;
}

std::string DescribeDifference(const std::vector<TensorSpec>& expected, const std::vector<TensorSpec>& got) {
  for (size_t i = 0; i < std::max(expected.size(), got.size()); ++i) {
    if (i >= expected.size()) return absl::StrCat("tensor ", i, ": expected no more, got ", Describe(got[i]));
    if (i >= got.size())
      return absl::StrCat("tensor ", i, ": expected ", Describe(expected[i]), ", got no more");
    if (!(expected[i] == got[i])) {
      return absl::StrCat("tensor ", i, ": expected ", Describe(expected[i]), ", got ", Describe(got[i]));
    }
  }
  return "";
}

}  // namespace catchment
