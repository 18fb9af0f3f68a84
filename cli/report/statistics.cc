#include "cli/report/statistics.h"

#include <algorithm>
#include <cmath>
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

// Of the mean.
double StandardError(const std::vector<double>& values, double mean) {
  const double n = static_cast<double>(values.size());
  double squares = 0;
  for (double value : values) squares += (value - mean) * (value - mean);
  return std::sqrt(squares / (n - 1) / n);
}

}  // namespace

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

Ratio RatioOf(const BySeed& values, const BySeed& base) {
  const std::vector<double> ratios = LogRatios(values, base);
  Ratio ratio;
  if (ratios.empty()) return ratio;
  const double mean = SpreadOf(ratios).mean;
  ratio.value = ratio.low = ratio.high = std::exp(mean);
  if (ratios.size() < 2) return ratio;
  ratio.has_interval = true;
  const double half =
      StandardError(ratios, mean) * StudentTQuantile(kConfidence, static_cast<double>(ratios.size() - 1));
  ratio.low = std::exp(mean - half);
  ratio.high = std::exp(mean + half);
  return ratio;
}

}  // namespace catchment
