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

// The values whose squares are added up in float32.
constexpr int64_t kSquaresPiece = 4096;

double OfPiece(const float* values, int64_t n) {
  Lanes sums[kSums] = {};
  int64_t i = 0;
  for (; i + kSums * kWidth <= n; i += kSums * kWidth) {
#pragma GCC unroll 4
    for (int s = 0; s < kSums; ++s) {
      const Lanes x = Load(values + i + s * kWidth);
      sums[s] += x * x;
    }
  }
  double sum = 0;
  for (const Lanes& of : sums) {
    for (int64_t lane = 0; lane < kWidth; ++lane) sum += of[lane];
  }
  for (; i < n; ++i) sum += double{values[i]} * values[i];
  return sum;
}

}  // namespace

double SumOfSquares(const float* values, int64_t n) {
  double sum = 0;
  for (int64_t begin = 0; begin < n; begin += kSquaresPiece)
    sum += OfPiece(values + begin, std::min(kSquaresPiece, n - begin));
  return sum;
}

void NoiseAverage::Add(const ContributionSpread& spread) {
  if (spread.contributions < 2) return;
  const double deviations = spread.squares - spread.samples * spread.squared_average;
  const double trace = deviations / (spread.contributions - 1);
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
