#include "server/rules/elastic_difference.h"

#include <algorithm>

namespace catchment {
namespace {

// The values of the sum of a group's differences that are computed and used at a time, so that they stay in
// the first-level cache; few, so that the processor fetches from all contributions at once.
constexpr int64_t kStrip = 128;

void Lone(float alpha, const float* x, int64_t n, float* d, float* c) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    d[i] = alpha * (x[i] - c[i]);
    c[i] += d[i];
  }
}

void AddStrip(float alpha, const float* x, const float* c, int64_t n, float* d, float* sum) {
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    d[i] = alpha * (x[i] - c[i]);
    sum[i] += d[i];
  }
}

}  // namespace

float ElasticDifferenceRule::MovingRateFor(int64_t members) const {
  if (members <= planned_members_) return moving_rate_;
  return moving_rate_ * static_cast<float>(planned_members_) / static_cast<float>(members);
}

bool ElasticDifferenceRule::Apply(absl::Span<const Input> contributions, const Center& center,
                                  float* weights_copy) const {
  const uint64_t members = std::max<uint64_t>(center.contributions, contributions.size());
  const float alpha = MovingRateFor(static_cast<int64_t>(members));
  if (contributions.size() == 1) {
    Lone(alpha, contributions[0].values, center.size, contributions[0].answer, center.weights);
    if (weights_copy != nullptr) std::copy_n(center.weights, center.size, weights_copy);
    return true;
  }
  alignas(64) float sum[kStrip];
  for (int64_t begin = 0; begin < center.size; begin += kStrip) {
    const int64_t n = std::min(kStrip, center.size - begin);
    float* const c = center.weights + begin;
    std::fill_n(sum, n, 0.0f);
    for (const Input& contribution : contributions) {
      AddStrip(alpha, contribution.values + begin, c, n, contribution.answer + begin, sum);
    }
    for (int64_t i = 0; i < n; ++i) c[i] += sum[i];
    if (weights_copy != nullptr) std::copy_n(c, n, weights_copy + begin);
  }
  return true;
}

}  // namespace catchment
