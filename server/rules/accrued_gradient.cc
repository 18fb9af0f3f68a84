#include "server/rules/accrued_gradient.h"

#include <algorithm>
#include <cstring>

namespace catchment {
namespace {

// The average is made and used in pieces that stay in the first-level cache: memory is passed over once.
constexpr int64_t kPiece = 2048;

void Average(absl::Span<const Rule::Contribution> contributions, double samples, int64_t begin, int64_t n,
             float* average) {
  std::fill_n(average, n, 0.0f);
  for (const Rule::Contribution& contribution : contributions) {
    if (contribution.samples == 0) continue;
    const float share = static_cast<float>(contribution.samples / samples);
    const float* values = contribution.values + begin;
    for (int64_t i = 0; i < n; ++i) average[i] += share * values[i];
  }
}

}  // namespace

bool AccruedGradientRule::Apply(absl::Span<const Contribution> contributions, const Center& center,
                                float* weights_copy) const {
  double samples = 0;
  const Contribution* lone = nullptr;
  for (const Contribution& contribution : contributions) {
    if (contribution.samples > 0) lone = samples == 0 ? &contribution : nullptr;
    samples += contribution.samples;
  }
  if (samples == 0) {
    if (weights_copy != nullptr) std::memcpy(weights_copy, center.weights, center.size * sizeof(float));
    return false;
  }
  const Optimizer::Step step{center.learning_rate, center.steps + 1};
  alignas(64) float average[kPiece];
  for (int64_t begin = 0; begin < center.size; begin += kPiece) {
    const int64_t n = std::min(kPiece, center.size - begin);
    if (lone == nullptr) Average(contributions, samples, begin, n, average);
    Optimizer::Part part{n, lone != nullptr ? lone->values + begin : average, center.weights + begin};
    for (int s = 0; s < num_states(); ++s) part.states[s] = center.states[s] + begin;
    if (weights_copy != nullptr) part.copy = weights_copy + begin;
    optimizer_->Apply(step, part);
  }
  return true;
}

}  // namespace catchment
