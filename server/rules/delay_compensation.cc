#include <cmath>

#include "server/rules/gradient_compensation.h"

namespace catchment {
namespace {

// Returns the Taylor term without lambda. In this order the term is 0 if the weight has not changed, even
// if the square of the gradient exceeds float32's range.
inline float TaylorTerm(float g, float moved) { return g * (g * moved); }

}  // namespace

void DelayCompensation::Compensate(uint64_t, const Part& part) const {
  const float lambda = lambda_;
  const float* __restrict gradient = part.gradient;
  const float* __restrict w = part.weights;
  const float* __restrict sent = part.sent;
  float* __restrict out = part.out;
  for (int64_t i = 0; i < part.n; ++i) {
    const float g = gradient[i];
    out[i] = g + lambda * TaylorTerm(g, w[i] - sent[i]);
  }
}

void AdaptiveDelayCompensation::Compensate(uint64_t, const Part& part) const {
  const float lambda0 = lambda0_, m = decay_;
  const float* __restrict gradient = part.gradient;
  const float* __restrict w = part.weights;
  const float* __restrict sent = part.sent;
  float* __restrict ms = part.state;
  float* __restrict out = part.out;
  for (int64_t i = 0; i < part.n; ++i) {
    const float g = gradient[i];
    ms[i] = m * ms[i] + (1 - m) * g * g;
    out[i] = g + lambda0 / std::sqrt(ms[i] + 1e-7f) * TaylorTerm(g, w[i] - sent[i]);
  }
}

}  // namespace catchment
