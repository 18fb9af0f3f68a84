#include "server/rules/accrued_gradient.h"

#include <algorithm>
#include <array>
#include <cstring>

namespace catchment {
namespace {

// A group's average is made and used in pieces that stay in the first-level cache, so that memory is passed
// over once.
constexpr int64_t kPiece = 1024;
// Contributions that are added at a time, so that the processor fetches from several at once.
constexpr int kTogether = 4;

struct Term {
  float share;
  const float* values;
};

// average += share * values of each term, in order.
template <int kTerms>
void Add(const Term* terms, int64_t n, float* average) {
  std::array<Term, kTerms> local;
  std::copy_n(terms, kTerms, local.begin());
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    float sum = average[i];
    for (const Term& term : local) sum += term.share * term.values[i];
    average[i] = sum;
  }
}

void Add(const Term* terms, int count, int64_t n, float* average) {
  switch (count) {
    case 1: return Add<1>(terms, n, average);
    case 2: return Add<2>(terms, n, average);
    case 3: return Add<3>(terms, n, average);
    case 4: return Add<4>(terms, n, average);
  }
}

void Average(absl::Span<const Rule::Contribution> contributions, double samples, int64_t begin, int64_t n,
             float* average) {
  std::fill_n(average, n, 0.0f);
  std::array<Term, kTogether> terms;
  int count = 0;
  for (const Rule::Contribution& contribution : contributions) {
    if (contribution.samples == 0) continue;
    terms[count++] = {static_cast<float>(contribution.samples / samples), contribution.values + begin};
    if (count < kTogether) continue;
    Add(terms.data(), count, n, average);
    count = 0;
  }
  Add(terms.data(), count, n, average);
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
  const int64_t piece = lone != nullptr ? center.size : kPiece;
  for (int64_t begin = 0; begin < center.size; begin += piece) {
    const int64_t n = std::min(piece, center.size - begin);
    if (lone == nullptr) Average(contributions, samples, begin, n, average);
    Optimizer::Part part{n, lone != nullptr ? lone->values + begin : average, center.weights + begin};
    for (int s = 0; s < num_states(); ++s) part.states[s] = center.states[s] + begin;
    if (weights_copy != nullptr) part.copy = weights_copy + begin;
    optimizer_->Apply(step, part);
  }
  return true;
}

}  // namespace catchment
