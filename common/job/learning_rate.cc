#include "common/job/learning_rate.h"

#include <cmath>

namespace catchment {

double LearningRate(const v1::Optimizer& optimizer, double progress) {
  constexpr double kPi = 3.14159265358979323846;
  const v1::Schedule& schedule = optimizer.schedule();
  const double rate = optimizer.learning_rate();
  const double warmup = schedule.warmup();
  const double p = progress > 0 ? std::fmin(progress, 1.0) : 0.0;
  if (p < warmup) return rate * p / warmup;
  if (schedule.decay() != v1::Schedule::COSINE) return rate;
  const double q = (p - warmup) / (1 - warmup);
  const double final_fraction = schedule.final_fraction();
  return rate * (final_fraction + (1 - final_fraction) * (1 + std::cos(kPi * q)) / 2);
}

}  // namespace catchment
