#include "server/rules/gradient_noise.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/codec/codec.h"
#include "common/job/algorithm_facts.h"
#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

// Sums in registers, several at a time, so that an addition need not wait for the one before.
using Lanes = float __attribute__((vector_size(32)));
constexpr int64_t kWidth = sizeof(Lanes) / sizeof(float);
constexpr int kSums = 4;

Lanes Load(const float* values) {
  Lanes lanes;
  std::memcpy(&lanes, values, sizeof(lanes));
  return lanes;
}

// Returns the sum of value(i)^2 over i = 0 .. n-1, with lanes(i) = value(i) .. value(i + kWidth - 1).
template <typename LanesAt, typename ValueAt>
double SumOfSquares(int64_t n, LanesAt lanes, ValueAt value) {
  Lanes sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kWidth <= n; i += kSums * kWidth) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const Lanes x = lanes(i + s * kWidth);
      sums[s] += x * x;
    }
  }
  double sum = 0;
  for (const Lanes& of : sums) {
    for (int64_t lane = 0; lane < kWidth; ++lane) sum += of[lane];
  }
  for (; i < n; ++i) sum += double{value(i)} * value(i);
  return sum;
}

}  // namespace

void AddDeviation(const float* values, const float* average, int64_t n, double samples,
                  ContributionSpread* spread) {
  spread->squared_deviations +=
      samples * SumOfSquares(
                    n, [&](int64_t i) { return Load(values + i) - Load(average + i); },
                    [&](int64_t i) { return values[i] - average[i]; });
}

void AddAverage(const float* average, int64_t n, ContributionSpread* spread) {
  spread->squared_average += SumOfSquares(
      n, [&](int64_t i) { return Load(average + i); }, [&](int64_t i) { return average[i]; });
}

void NoiseAverage::Add(const ContributionSpread& spread) {
  if (spread.contributions < 2) return;
  const double trace = spread.squared_deviations / (spread.contributions - 1);
  const double squared_gradient = spread.squared_average - trace / spread.samples;
  if (!std::isfinite(trace) || !std::isfinite(squared_gradient)) return;
  ++updates_;
  const double weight = 1.0 / static_cast<double>(std::min(updates_, kLatest));
  trace_ += weight * (trace - trace_);
  squared_gradient_ += weight * (squared_gradient - squared_gradient_);
}

bool HasGradientNoise(const v1::Job& job) {
  const v1::Algorithm& algorithm = job.algorithm();
  const v1::AccruedGradient& gradient = algorithm.contribution().gradient();
  const bool of_one_pass = gradient.push_period() == 1 || gradient.mean();
  return algorithm.contribution().has_gradient() && of_one_pass &&
         gradient.fetch_period() == gradient.push_period() &&
         (gradient.push_period() == 1 || gradient.local_learning_rate() == 0) &&
         NumGroups(algorithm.consistency()) > 0 && MakeGradientCompensation(job) == nullptr &&
         algorithm.compensation().of() != v1::Compensation::GRADIENT && !job.optimizer().has_clip_norm() &&
         !HasErrorFeedback(job.compression().push());
}

}  // namespace catchment
