#include "server/rules/elastic_difference.h"

#include <algorithm>

namespace catchment {
namespace {

constexpr int64_t kPiece = 2048;

}  // namespace

bool ElasticDifferenceRule::Apply(absl::Span<const Contribution> contributions, const Center& center,
                                  float* weights_copy) const {
  const float alpha = alpha_;
  alignas(64) float sum[kPiece];
  for (int64_t begin = 0; begin < center.size; begin += kPiece) {
    const int64_t n = std::min(kPiece, center.size - begin);
    float* const c = center.weights + begin;
    std::fill_n(sum, n, 0.0f);
    for (const Contribution& contribution : contributions) {
      const float* const x = contribution.values + begin;
      float* const d = contribution.answer + begin;
      for (int64_t i = 0; i < n; ++i) {
        d[i] = alpha * (x[i] - c[i]);
        sum[i] += d[i];
      }
    }
    for (int64_t i = 0; i < n; ++i) c[i] += sum[i];
    if (weights_copy != nullptr) std::copy_n(c, n, weights_copy + begin);
  }
  return true;
}

}  // namespace catchment
