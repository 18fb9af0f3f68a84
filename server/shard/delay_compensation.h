// DC-ASGD (Zheng et al. 2017, arXiv:1609.08326): adds the first-order Taylor term of the gradient between the
// weights that the worker computed with and the current ones, with the diagonal of the gradient's outer
// product instead of the Hessian.
//   constant  g + lambda * g*g * (w - w_sent)
//   adaptive  ms = m * ms + (1 - m) * g*g ;  lambda = lambda0 / sqrt(ms + 1e-7)
// There is one w_sent for each worker: with one for all workers, as in MXNet, only the last update is
// compensated.
#ifndef CATCHMENT_SERVER_SHARD_DELAY_COMPENSATION_H_
#define CATCHMENT_SERVER_SHARD_DELAY_COMPENSATION_H_

#include "server/shard/gradient_compensation.h"

namespace catchment {

class DelayCompensation final : public GradientCompensation {
 public:
  explicit DelayCompensation(float lambda) : lambda_(lambda) {}
  const char* state_name() const override { return nullptr; }
  void Compensate(uint64_t steps, const Part& part) const override;

 private:
  const float lambda_;
};

class AdaptiveDelayCompensation final : public GradientCompensation {
 public:
  AdaptiveDelayCompensation(float lambda0, float decay) : lambda0_(lambda0), decay_(decay) {}
  const char* state_name() const override { return "delay_compensation.mean_square"; }
  void Compensate(uint64_t steps, const Part& part) const override;

 private:
  const float lambda0_;
  const float decay_;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_SHARD_DELAY_COMPENSATION_H_
