#include <algorithm>

#include "cli/report/charts.h"
#include "cli/report/statistics.h"

namespace catchment {
namespace {

constexpr int kPoints = 60;

// `scores` are ascending in x, and `at` is not before them; after the last one it stays.
double Interpolate(const std::vector<Score>& scores, double Score::*x, double at) {
  const auto after = std::find_if(scores.begin(), scores.end(), [&](const Score& s) { return s.*x >= at; });
  if (after == scores.begin()) return after->accuracy;
  if (after == scores.end()) return scores.back().accuracy;
  const Score& before = *(after - 1);
  const double share = (at - before.*x) / ((*after).*x - before.*x);
  return before.accuracy + share * (after->accuracy - before.accuracy);
}

}  // namespace

std::vector<CurvePoint> AccuracyOver(double Score::*x, const std::vector<const RunResult*>& runs) {
  double begin = 0;
  double end = 0;
  for (const RunResult* run : runs) {
    if (run->scores.empty()) return {};
    begin = std::max(begin, run->scores.front().*x);
    end = std::max(end, run->scores.back().*x);
  }
  if (runs.empty()) return {};
  std::vector<CurvePoint> curve;
  for (int i = 0; i <= kPoints; ++i) {
    const double at = begin + (end - begin) * i / kPoints;
    std::vector<double> accuracies;
    for (const RunResult* run : runs) accuracies.push_back(Interpolate(run->scores, x, at));
    const Spread spread = SpreadOf(accuracies);
    curve.push_back({at, spread.mean, spread.low, spread.high});
  }
  return curve;
}

}  // namespace catchment
