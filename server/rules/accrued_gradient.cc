#include "server/rules/accrued_gradient.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

// The values of a group's average that are computed and used at a time, so that they stay in the first-level
// cache and memory is passed over once; not for optimizers that need whole tensors.
constexpr int64_t kPiece = 1024;
// The number of contributions that are added at a time, so that the processor fetches from several at once.
constexpr int kTogether = 4;

struct Term {
  float share;
  const float* values;
};

// Computes average += share * values for each term, in order.
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
    case 1:
      return Add<1>(terms, n, average);
    case 2:
      return Add<2>(terms, n, average);
    case 3:
      return Add<3>(terms, n, average);
    case 4:
      return Add<4>(terms, n, average);
  }
}

}  // namespace

void BeginSum(float share, int64_t n, float* sum) {
  // A sum begins with 0, which is not the same as -0.
  for (int64_t i = 0; i < n; ++i) sum[i] = 0.0f + share * sum[i];
}

void AddUp(float share, const float* values, int64_t n, float* sum) {
  const Term term{share, values};
  Add<1>(&term, n, sum);
}

double AccruedGradientRule::Weight(const Input& contribution) const {
  return contribution.samples * StalenessFactor(compensation_, contribution.staleness);
}

AccruedGradientRule::Sum AccruedGradientRule::SumUp(absl::Span<const Input> contributions) const {
  Sum sum;
  for (const Input& contribution : contributions) {
    if (contribution.samples == 0) continue;
    if (sum.first == nullptr) sum.first = &contribution;
    ++sum.contributions;
    sum.samples += contribution.samples;
    sum.staleness += 1.0 * contribution.samples * contribution.measured_staleness;
    sum.weight += Weight(contribution);
  }
  sum.divisor = compensation_.of() == v1::Compensation::GRADIENT ? sum.samples : sum.weight;
  return sum;
}

std::vector<std::string> AccruedGradientRule::state_names() const {
  std::vector<std::string> names = optimizer_->state_names();
  if (has_compensation_state()) names.push_back(gradient_compensation_->state_name());
  return names;
}

bool AccruedGradientRule::has_compensation_state() const {
  return gradient_compensation_ != nullptr && gradient_compensation_->state_name() != nullptr;
}

float* AccruedGradientRule::compensation_state(const Center& center) const {
  return center.states[optimizer_states_];
}

void AccruedGradientRule::Average(absl::Span<const Input> contributions, double divisor, const Rule::Sum* sum,
                                  int64_t begin, int64_t n, float* average) const {
  if (sum == nullptr) {
    std::fill_n(average, n, 0.0f);
  } else {
    const auto factor = static_cast<float>(sum->samples / divisor);
    for (int64_t i = 0; i < n; ++i) average[i] = factor * sum->values[begin + i];
  }
  std::array<Term, kTogether> terms;
  int count = 0;
  for (const Input& contribution : contributions) {
    if (contribution.samples == 0 || contribution.values == nullptr) continue;
    terms[count++] = {static_cast<float>(Weight(contribution) / divisor), contribution.values + begin};
    if (count < kTogether) continue;
    Add(terms.data(), count, n, average);
    count = 0;
  }
  Add(terms.data(), count, n, average);
}

void AccruedGradientRule::AverageCompensated(absl::Span<const Input> contributions, double divisor,
                                             const Center& center, int64_t begin, int64_t n,
                                             float* average) const {
  alignas(64) float compensated[kPiece];
  std::fill_n(average, n, 0.0f);
  for (const Input& contribution : contributions) {
    if (contribution.samples == 0) continue;
    const float* const weights = center.weights + begin;
    GradientCompensation::Part part{.n = n, .gradient = contribution.values + begin, .weights = weights};
    part.sent = contribution.sent == nullptr ? weights : contribution.sent + begin;
    if (has_compensation_state()) part.state = compensation_state(center) + begin;
    part.out = compensated;
    gradient_compensation_->Compensate(center.steps - center.compensation_begin, part);
    const Term term{static_cast<float>(Weight(contribution) / divisor), compensated};
    Add(&term, 1, n, average);
  }
}

bool AccruedGradientRule::Apply(absl::Span<const Input> contributions, const Center& center,
                                float* weights_copy) const {
  const Sum sum = SumUp(contributions);
  // Without weight, staleness has reduced every contribution to nothing, and their average is undefined.
  if (sum.samples == 0 || sum.weight == 0) {
    if (weights_copy != nullptr) std::memcpy(weights_copy, center.weights, center.size * sizeof(float));
    return false;
  }
  Optimizer::Step step{static_cast<float>(center.learning_rate * (sum.divisor / sum.samples)),
                       center.steps + 1, center.cycled_momentum};
  if (center.momentum != nullptr) {
    const Input& first = *sum.first;
    const MomentumControl::Setting setting =
        center.momentum->Set({first.version, sum.staleness / sum.samples, first.values, step.learning_rate});
    step.momentum = setting.momentum;
    step.learning_rate *= setting.rate_factor;
  }
  if (center.spread != nullptr) {
    center.spread->contributions = sum.contributions;
    center.spread->samples = sum.samples;
    if (center.sum != nullptr) center.spread->squares = center.sum->squares;
  }
  const bool as_it_is =
      sum.contributions == 1 && gradient_compensation_ == nullptr && !sum.scaled() && center.sum == nullptr;
  const Optimizer::Part block{.n = center.size,
                              .gradient = as_it_is ? sum.first->values : center.average,
                              .weights = center.weights,
                              .states = {center.states[0], center.states[1], center.states[2]},
                              .copy = weights_copy,
                              .tensor_ends = center.tensor_ends,
                              .position = center.position};
  if (!as_it_is && center.tensor_ends.empty()) {
    ApplyInPieces(contributions, sum, step, center, block);
  } else {
    for (int64_t begin = 0; !as_it_is && begin < center.size; begin += kPiece) {
      const int64_t n = std::min(kPiece, center.size - begin);
      Combine(contributions, sum, center, begin, n, center.average + begin);
    }
    optimizer_->Apply(step, block);
  }
  if (center.momentum != nullptr) center.momentum->Stepped(center.version, center.weights);
  return true;
}

void AccruedGradientRule::ApplyInPieces(absl::Span<const Input> contributions, const Sum& sum,
                                        const Optimizer::Step& step, const Center& center,
                                        const Optimizer::Part& block) const {
  alignas(64) float combined[kPiece];
  for (int64_t begin = 0; begin < block.n; begin += kPiece) {
    Optimizer::Part piece = block.Slice(begin, std::min(kPiece, block.n - begin));
    Combine(contributions, sum, center, begin, piece.n, combined);
    piece.gradient = combined;
    optimizer_->Apply(step, piece);
    if (has_compensation_state()) {
      gradient_compensation_->Stepped(piece.n, piece.states[0], compensation_state(center) + begin);
    }
  }
}

void AccruedGradientRule::Combine(absl::Span<const Input> contributions, const Sum& sum, const Center& center,
                                  int64_t begin, int64_t n, float* out) const {
  if (gradient_compensation_ != nullptr) {
    return AverageCompensated(contributions, sum.divisor, center, begin, n, out);
  }
  Average(contributions, sum.divisor, center.sum, begin, n, out);
  if (center.spread != nullptr) AddSpread(contributions, begin, n, out, center.spread);
}

void AccruedGradientRule::AddSpread(absl::Span<const Input> contributions, int64_t begin, int64_t n,
                                    const float* average, ContributionSpread* spread) const {
  for (const Input& contribution : contributions) {
    if (contribution.samples == 0 || contribution.values == nullptr) continue;
    spread->squares += contribution.samples * SumOfSquares(contribution.values + begin, n);
  }
  spread->squared_average += SumOfSquares(average, n);
}

}  // namespace catchment
