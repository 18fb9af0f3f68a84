#include <cmath>
#include <cstddef>

#include "worker/algorithms/gradient_transform.h"

namespace catchment {
namespace {

double SumOfSquares(absl::Span<const float> g) {
  // Computes several sums in parallel, which the compiler vectorises.
  constexpr size_t kLanes = 8;
  double sums[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= g.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) sums[lane] += double{g[i + lane]} * g[i + lane];
  }
  double sum = 0;
  for (; i < g.size(); ++i) sum += double{g[i]} * g[i];
  for (const double lane : sums) sum += lane;
  return sum;
}

}  // namespace

void ClipNorm(float max_norm, absl::Span<float> g) {
  ClipNorm(max_norm, {{0, static_cast<int64_t>(g.size())}}, g);
}

void ClipNorm(float max_norm, absl::Span<const Range> ranges, absl::Span<float> g) {
  double sum = 0;
  for (const Range& range : ranges) sum += SumOfSquares(g.subspan(range.begin, range.size()));
  const double coefficient = max_norm / (std::sqrt(sum) + 1e-6);
  if (coefficient >= 1) return;
  const float scale = static_cast<float>(coefficient);
  for (const Range& range : ranges) {
    for (float& value : g.subspan(range.begin, range.size())) value *= scale;
  }
}

}  // namespace catchment
