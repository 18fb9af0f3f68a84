// Measures the move of the center since a worker was sent its weights: the gap
//   G = ||w_now - w_sent|| / sqrt(n)
// of Barkai, Hakimi, Schuster 2020, arXiv:1909.10802, computed from all values of a small shard, and from
// 1024 values of a larger one, one in each of 1024 equal ranges. So a worker's sample takes 4 KiB for any
// size of the model, and a push costs 1024 reads from memory when weights are sent and when the push is
// applied.
//
// The position of a value in its range is pseudo-random, and the same in every run: with a fixed distance it
// might always be in the same column of a matrix.
// Threads: safe.
#ifndef CATCHMENT_SERVER_SHARD_GAP_SAMPLE_H_
#define CATCHMENT_SERVER_SHARD_GAP_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/job/parameter_layout.h"

namespace catchment {

class GapSample {
 public:
  explicit GapSample(int64_t shard_size);

  // Returns the number of values of the sample in `block`, a range of the shard.
  int64_t SizeIn(Range block) const { return static_cast<int64_t>(In(block).size()); }
  // Copies these values of `shard`, all of its weights, to `sample`, which has SizeIn(block) values.
  void Copy(Range block, const float* shard, float* sample) const;
  // Returns sum (w_now - w_sent)^2 over them.
  double SquaredGap(Range block, const float* shard, const float* sample) const;

 private:
  absl::Span<const int64_t> In(Range block) const;

  std::vector<int64_t> positions_;  // in the shard, ascending
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_GAP_SAMPLE_H_
