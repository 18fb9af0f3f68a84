// Sets the momentum from a measurement of the total momentum (YellowFin's closed loop: Zhang and Mitliagkas
// 2017, arXiv:1706.03471), on fixed coordinates of the block:
//   mu_T = median((x_{v+1} - x_v + eta * g) / (x_v - x_{v-1}))    g computed at x_v; eta of the step from x_v
//   mu  += gain * (target - mu_T)                                 clamped to [min_momentum, target]
//   eta' = eta * min(1, c / ((1 - target) * (1 + tau_mean)))      server/rules/step_bound.h
// The coordinates come from a fixed sequence of pseudo-random numbers. The sampled weights of the last
// kVersions versions are kept; a staler gradient is not measured, and does not change mu. If the noise of
// the gradients is larger than the gradients, mu_T is close to mu itself, and the total momentum cannot be
// measured.
#ifndef CATCHMENT_SERVER_RULES_CLOSED_LOOP_MOMENTUM_H_
#define CATCHMENT_SERVER_RULES_CLOSED_LOOP_MOMENTUM_H_

#include <vector>

#include "server/rules/momentum_control.h"
#include "server/rules/step_bound.h"

namespace catchment {

class ClosedLoopMomentum final : public MomentumControl {
 public:
  static constexpr uint64_t kVersions = 128;

  ClosedLoopMomentum(float target, const v1::Compensation& compensation, int64_t size);

  Setting Set(const Stale& stale) override;
  void Stepped(uint64_t version, const float* weights) override;
  v1::MomentumState state() const override;
  void Restore(const v1::MomentumState& state) override;
  void SavePoints(uint64_t from,
                  google::protobuf::RepeatedPtrField<v1::MomentumPoint>* points) const override;
  void RestorePoint(const v1::MomentumPoint& point) override;

 private:
  // The weights at the sampled coordinates at one version.
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Point {
    uint64_t version = kNone;
    float learning_rate = 0;  // of the step from here
    std::vector<float> x;
  };

  Point& At(uint64_t version) { return points_[version % kVersions]; }
  // Measures mu_T with gradient_, after the step from its version.
  void Measure();

  const double target_;
  const v1::ClosedLoopMomentum config_;
  StepBound step_bound_;
  std::vector<int64_t> coordinates_;
  std::vector<Point> points_;
  std::vector<double> ratios_;
  uint64_t version_ = 0;         // that gradient_ was computed at
  std::vector<float> gradient_;  // at the coordinates
  double mu_;
  double measured_ = 0;  // mu_T, smoothed for reports
  uint64_t readings_ = 0;
  float learning_rate_ = 0;  // of the step under way
  float rate_factor_ = 1;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_RULES_CLOSED_LOOP_MOMENTUM_H_
