#include <cmath>

#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

constexpr float kDecay = 0.999f;
constexpr float kLeast = 1e-8f;

}  // namespace

void GapAware::Compensate(uint64_t steps, const Part& part) const {
  // Before the first step there is no usual step, and the center has not moved.
  const double seen = 1 - std::pow(double{kDecay}, static_cast<double>(steps));
  const float correction = steps == 0 ? 0.0f : static_cast<float>(1 / seen);
  const float eta = max_learning_rate_;
  const float* __restrict gradient = part.gradient;
  const float* __restrict w = part.weights;
  const float* __restrict sent = part.sent;
  const float* __restrict ra = part.state;
  float* __restrict out = part.out;
  for (int64_t i = 0; i < part.n; ++i) {
    const float usual = eta * (std::sqrt(ra[i] * correction) + kLeast);
    out[i] = gradient[i] / (1 + std::abs(w[i] - sent[i]) / usual);
  }
}

void GapAware::Stepped(int64_t n, const float* __restrict v, float* __restrict ra) const {
  for (int64_t i = 0; i < n; ++i) ra[i] = kDecay * ra[i] + (1 - kDecay) * v[i] * v[i];
}

}  // namespace catchment
