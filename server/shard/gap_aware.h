// Gap-aware (Barkai, Hakimi, Schuster 2020, arXiv:1909.10802): divides a gradient, value by value, by the
// number of usual steps that the center has moved since.
//   g / (1 + |w - w_sent| / C)
//   C  = eta_max * (sqrt(ra / (1 - 0.999^t)) + 1e-8)       a usual step; t: steps before this one
//   ra = 0.999 * ra + 0.001 * v*v                          after each step; v: the momentum buffer
#ifndef CATCHMENT_SERVER_SHARD_GAP_AWARE_H_
#define CATCHMENT_SERVER_SHARD_GAP_AWARE_H_

#include "server/shard/gradient_compensation.h"

namespace catchment {

class GapAware final : public GradientCompensation {
 public:
  explicit GapAware(float max_learning_rate) : max_learning_rate_(max_learning_rate) {}
  const char* state_name() const override { return "gap_aware.mean_square"; }
  void Compensate(uint64_t steps, const Part& part) const override;
  void Stepped(int64_t n, const float* momentum, float* state) const override;

 private:
  const float max_learning_rate_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_GAP_AWARE_H_
