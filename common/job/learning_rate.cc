#include "common/job/learning_rate.h"

#include <cmath>

namespace catchment {
namespace {

// Returns the value at x of half a cosine from `from` at x = 0 to `to` at x = 1.
double HalfCosine(double from, double to, double x) {
  constexpr double kPi = 3.14159265358979323846;
  return to + (from - to) * (1 + std::cos(kPi * x)) / 2;
}

// Returns the value at q of a curve that rises from `begin` to `peak` over the first pct_start of q, and then
// falls to `end`.
double OneCycle(const v1::Schedule& schedule, double begin, double peak, double end, double q) {
  const double rise = schedule.pct_start();
  if (q < rise) return HalfCosine(begin, peak, q / rise);
  return HalfCosine(peak, end, (q - rise) / (1 - rise));
}

// As a float, 0.1 is a little more than a tenth: three of them end at 0.3 all the same.
double StepsTaken(double step_every, double q) { return std::floor(q / step_every + 1e-6); }

// Returns the fraction of the learning rate that remains at progress q of the decay.
double DecayFactor(const v1::Schedule& schedule, double q) {
  const double final_fraction = schedule.final_fraction();
  switch (schedule.decay()) {
    case v1::Schedule::COSINE:
      return HalfCosine(1, final_fraction, q);
    case v1::Schedule::STEP:
      return std::pow(double{schedule.factor()}, StepsTaken(schedule.step_every(), q));
    case v1::Schedule::EXPONENTIAL:
      return std::pow(final_fraction, q);
    case v1::Schedule::POLYNOMIAL:
      return final_fraction + (1 - final_fraction) * std::pow(1 - q, double{schedule.power()});
    case v1::Schedule::ONE_CYCLE:
      return OneCycle(schedule, schedule.initial_lr_fraction(), 1, final_fraction, q);
    default:
      return 1;
  }
}

// Returns the nearest number in [0, 1].
double Clamped(double progress) { return progress > 0 ? std::fmin(progress, 1.0) : 0.0; }

}  // namespace

double LearningRate(const v1::Optimizer& optimizer, double progress) {
  const v1::Schedule& schedule = optimizer.schedule();
  const double rate = optimizer.learning_rate();
  const double warmup = schedule.warmup();
  const double p = Clamped(progress);
  if (p < warmup) return rate * DecayFactor(schedule, 0) * p / warmup;
  return rate * DecayFactor(schedule, (p - warmup) / (1 - warmup));
}

std::optional<float> CycledMomentum(const v1::Optimizer& optimizer, double progress) {
  const v1::Schedule& schedule = optimizer.schedule();
  if (!schedule.has_min_momentum()) return std::nullopt;
  const double most = optimizer.has_beta1() ? optimizer.beta1() : optimizer.momentum();
  const double warmup = schedule.warmup();
  const double q = std::fmax(0.0, Clamped(progress) - warmup) / (1 - warmup);
  return static_cast<float>(OneCycle(schedule, most, schedule.min_momentum(), most, q));
}

}  // namespace catchment
