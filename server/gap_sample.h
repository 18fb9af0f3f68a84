// How far the center has gone since it sent a worker its weights: the gap
//   G = ||w_now - w_sent|| / sqrt(n)
// of Barkai, Hakimi, Schuster 2020, arXiv:1909.10802, read on values of a shard: on all of a small one, on
// 1024 of a larger one, one in each of as many stretches of it. A worker's sample then takes 4 KiB, whatever
// the size of the model, and a push as many reads from memory twice: when weights are sent and when the push
// is applied.
//
// Where in its stretch a value lies is pseudo-random, the same in every run: at a fixed spacing it might
// always be the same column of a matrix. Threads: safe.
#ifndef CATCHMENT_SERVER_GAP_SAMPLE_H_
#define CATCHMENT_SERVER_GAP_SAMPLE_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "common/parameter_layout.h"

namespace catchment {

class GapSample {
 public:
  explicit GapSample(int64_t shard_size);

  // Of values begin .. end-1 of the shard: how many are in the sample, ...
  int64_t SizeIn(Range block) const { return static_cast<int64_t>(In(block).size()); }
  // ... the sample itself; `shard`: all its weights, `sample`: SizeIn(block) values, ...
  void Copy(Range block, const float* shard, float* sample) const;
  // ... and sum (w_now - w_sent)^2 over it.
  double SquaredGap(Range block, const float* shard, const float* sample) const;

 private:
  absl::Span<const int64_t> In(Range block) const;

  std::vector<int64_t> positions_;  // in the shard, ascending
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_GAP_SAMPLE_H_
