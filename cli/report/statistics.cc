#include "cli/report/statistics.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <numeric>

namespace catchment {
namespace {

constexpr double kConfidence = 0.95;

std::vector<double> LogRatios(const BySeed& values, const BySeed& base) {
  std::vector<double> ratios;
  for (const auto& [seed, value] : values) {
    if (const auto other = base.find(seed); other != base.end())
      ratios.push_back(std::log(value / other->second));
  }
  return ratios;
}

// Returns the standard error of the mean.
double StandardError(const std::vector<double>& values, double mean) {
  const double n = static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1) / n);
}

// The continued fraction of the incomplete beta function (Abramowitz and Stegun 26.5.8), from its tail: with
// this number of terms the remainder is below 1e-12 wherever x < (a + 1) / (a + b + 2).
double BetaFraction(double a, double b, double x) {
  constexpr int kTerms = 400;
  double tail = 1;
  for (int n = kTerms; n >= 1; --n) {
    const int m = n / 2;
    const double d = n % 2 == 0 ? m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m))
                                : -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1));
    tail = 1 + d / tail;
  }
  return 1 / tail;
}

// I_x(a, b), for x in [0, 1].
double IncompleteBeta(double a, double b, double x) {
  if (x <= 0 || x >= 1) return x <= 0 ? 0 : 1;
  if (x > (a + 1) / (a + b + 2)) return 1 - IncompleteBeta(b, a, 1 - x);
  const double logarithm =
      std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x);
  return std::exp(logarithm) / a * BetaFraction(a, b, x);
}

}  // namespace

double StudentTCdf(double t, double dof) {
  const double outside = IncompleteBeta(dof / 2, 0.5, dof / (dof + t * t));
  return t > 0 ? 1 - outside / 2 : outside / 2;
}

double StudentTQuantile(double confidence, double dof) {
  const double wanted = 0.5 + confidence / 2;
  double low = 0;
  double high = 1;
  while (StudentTCdf(high, dof) < wanted && high < 1e12) high *= 2;
  for (int i = 0; i < 100; ++i) {
    const double middle = (low + high) / 2;
    (StudentTCdf(middle, dof) < wanted ? low : high) = middle;
  }
  return (low + high) / 2;
}

Spread SpreadOf(const std::vector<double>& values) {
  if (values.empty()) return {};
  const auto [low, high] = std::minmax_element(values.begin(), values.end());
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {static_cast<int>(values.size()), sum / static_cast<double>(values.size()), *low, *high};
}

Spread SpreadOf(const BySeed& values) {
  std::vector<double> list;
  for (const auto& [seed, value] : values) list.push_back(value);
  return SpreadOf(list);
}

Ratio RatioOf(const BySeed& values, const BySeed& base, int pairs) {
  const std::vector<double> ratios = LogRatios(values, base);
  Ratio ratio;
  ratio.pairs = pairs;
  if (ratios.empty()) return ratio;
  const double mean = SpreadOf(ratios).mean;
  ratio.value = ratio.low = ratio.high = std::exp(mean);
  if (ratios.size() < 2) return ratio;
  ratio.has_interval = true;
  const double confidence = 1 - (1 - kConfidence) / pairs;
  const double half =
      StandardError(ratios, mean) * StudentTQuantile(confidence, static_cast<double>(ratios.size() - 1));
  ratio.low = std::exp(mean - half);
  ratio.high = std::exp(mean + half);
  return ratio;
}

}  // namespace catchment
