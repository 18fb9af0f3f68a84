// Measures the noise of gradients at a block, for the gradient noise scale (common/measures/noise_scale.h).
// It does so in updates that are made of several gradients g_i, each the mean over b_i samples, computed with
// the same weights. With B = sum_i b_i and their average g = sum_i b_i g_i / B, over k gradients:
//   tr(S)  =  sum_i b_i ||g_i - g||^2 / (k - 1)    S: the covariance of the gradients of single samples
//          =  (sum_i b_i ||g_i||^2 - B ||g||^2) / (k - 1)
//   |G|^2  =  ||g||^2 - tr(S) / B                  G: the gradient over all samples
// Both estimates are unbiased, also with unequal b_i, and add up over blocks and shards. With equal b_i they
// are those of McCandlish et al. 2018, arXiv:1812.06162, appendix A.1, with B_small = b and B_big = k b.
//
// Cost: in every kEvery-th update the contributions are read once more, while they are in the first-level
// cache: with four of them 0.9 instead of 0.5 ns for each parameter. Nothing that is measured has an effect
// on the update. It is in no checkpoint and no standby's copy: a new process measures again.
#ifndef CATCHMENT_SERVER_RULES_GRADIENT_NOISE_H_
#define CATCHMENT_SERVER_RULES_GRADIENT_NOISE_H_

#include <cstdint>

#include "proto/job.pb.h"

namespace catchment {

// The distance of the contributions to one update of a block from their average.
struct ContributionSpread {
  int contributions = 0;
  double samples = 0;          // B
  double squares = 0;          // sum_i b_i ||g_i||^2
  double squared_average = 0;  // ||g||^2
};

// Returns the sum of the squares of `n` values. Up to a few thousand at a time are added up in 32 sums in
// float32.
double SumOfSquares(const float* values, int64_t n);

// The means of tr(S) and |G|^2 over the first kLatest measurements, and from then on their exponential
// averages, in which a measurement has the weight 1 / kLatest. The paper's appendix averages both in this
// way, separately, because the ratio of two noisy measurements is biased.
//
// Threads: not thread-safe.
class NoiseAverage {
 public:
  // A prime, so that of groups that take turns each is measured.
  static constexpr uint64_t kEvery = 7;
  static constexpr uint64_t kLatest = 100;

  // Adds a measurement; ignores one of fewer than two contributions, and one that is not finite.
  void Add(const ContributionSpread& spread);

  uint64_t updates() const { return updates_; }  // that were measured
  double trace() const { return trace_; }
  double squared_gradient() const { return squared_gradient_; }

 private:
  uint64_t updates_ = 0;
  double trace_ = 0;
  double squared_gradient_ = 0;
};

// Returns true if the contributions of a group's update are gradients as they were computed, all with the
// same weights. Moves of weights, corrected and clipped gradients, and those of codecs with error feedback,
// which include residuals of earlier gradients, are not. BFLOAT16 and FLOAT16 change squared norms by less
// than a hundredth.
bool HasGradientNoise(const v1::Job& job);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_GRADIENT_NOISE_H_
