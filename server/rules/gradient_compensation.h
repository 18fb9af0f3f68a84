// Corrects a stale gradient to an estimate of the current one, value by value, from the move of the center
// since then: w - w_sent, where w_sent are the weights that its worker was sent last.
//
// Threads: it has no lock; its owner holds one for each part of the parameters.
#ifndef CATCHMENT_SERVER_RULES_GRADIENT_COMPENSATION_H_
#define CATCHMENT_SERVER_RULES_GRADIENT_COMPENSATION_H_

#include <cstdint>
#include <memory>

#include "proto/job.pb.h"

namespace catchment {

class GradientCompensation {
 public:
  // n values each. Nothing overlaps.
  struct Part {
    int64_t n = 0;
    const float* gradient = nullptr;
    const float* weights = nullptr;
    const float* sent = nullptr;  // weights
    float* state = nullptr;       // if it has one; zero at first
    float* out = nullptr;         // receives the gradient to apply
  };

  virtual ~GradientCompensation() = default;

  // Returns the name, in checkpoints, of the float vector, as long as the weights, that it keeps; null if it
  // keeps none.
  virtual const char* state_name() const = 0;
  // Writes the corrected gradient. `steps`: the optimizer's steps on this part since the state began.
  virtual void Compensate(uint64_t steps, const Part& part) const = 0;
  // Updates the state after the optimizer's step; `momentum` is its buffer.
  virtual void Stepped(int64_t n, const float* momentum, float* state) const {}
};

// Returns null if the job's compensation is of another kind. `job` is complete and valid.
std::unique_ptr<GradientCompensation> MakeGradientCompensation(const v1::Job& job);

// DC-ASGD (Zheng et al. 2017, arXiv:1609.08326): adds the first-order Taylor term of the gradient between the
// weights that the worker computed with and the current ones, with the diagonal of the gradient's outer
// product instead of the Hessian.
//   constant  g + lambda * g*g * (w - w_sent)
//   adaptive  ms = m * ms + (1 - m) * g*g ;  lambda = lambda0 / sqrt(ms + 1e-7)
// There is one w_sent for each worker: with one for all workers, as in MXNet, only the last update is
// compensated.
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

// Gap-aware (Barkai, Hakimi, Schuster 2020, arXiv:1909.10802): divides a gradient, value by value, by the
// number of usual steps that the center has moved since.
//   g / (1 + |w - w_sent| / C)
//   C  = eta_max * (sqrt(ra / (1 - 0.999^t)) + 1e-8)       a usual step; t: steps before this one
//   ra = 0.999 * ra + 0.001 * v*v                          after each step; v: the momentum buffer
class GapAware final : public GradientCompensation {
 public:
  explicit GapAware(float max_learning_rate) : max_learning_rate_(max_learning_rate) {}
  const char* state_name() const override { return "gap_aware.mean_square"; }
  void Compensate(uint64_t steps, const Part& part) const override;
  void Stepped(int64_t n, const float* v, float* ra) const override;

 private:
  const float max_learning_rate_;
};

// Reduces stale contributions. tau is the staleness in versions when a contribution is applied:
//   inverse         1 / max(1, tau)                   Zhang, Gupta, Lian, Liu 2015, arXiv:1511.05950
//   power           1 / (1 + tau)^exponent            1: DynSGD, Jiang, Cui, Zhang, Yu 2017
//   exponential     exp(-rate * tau)
//   delay_adaptive  threshold / max(threshold, tau)   Mishchenko et al. 2022, arXiv:2206.07638
// delay_adaptive can be combined with any of the others. The factor of a contribution without staleness is 1.
// Returns the product of the job's factors, of the learning rate or of the contribution (Compensation.of).
double StalenessFactor(const v1::Compensation& compensation, uint64_t staleness);

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_GRADIENT_COMPENSATION_H_
