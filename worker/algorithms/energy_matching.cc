#include "worker/algorithms/energy_matching.h"

#include <algorithm>
#include <cmath>

#include "common/job/learning_rate.h"

namespace catchment {
namespace {

constexpr float kMaxPi = 5;
constexpr float kEpsilon = 1e-16f;

}  // namespace

EnergyMatching::EnergyMatching(const v1::EnergyMatching& config, const v1::Optimizer& optimizer,
                               int64_t num_parameters)
    : config_(config), schedule_(optimizer), m_(num_parameters) {
  schedule_.set_learning_rate(config.learning_rate());
}

void EnergyMatching::Start(absl::Span<const float> weights) {
  last_x_.assign(weights.begin(), weights.end());
}

void EnergyMatching::Begin(double progress) { eta_ = static_cast<float>(LearningRate(schedule_, progress)); }

void EnergyMatching::Apply(Range layer, absl::Span<const float> weights, absl::Span<float> gradient) {
  const float eta = eta_, mu = config_.momentum(), kappa = config_.energy();
  const float full_rate = config_.learning_rate();
  const float* const x = weights.data();
  float* const last = last_x_.data();
  float* const m = m_.data();
  float* const g = gradient.data();
#pragma GCC ivdep
  for (int64_t i = layer.begin; i < layer.end; ++i) {
    const float u = -eta * g[i];
    m[i] = mu * m[i] + u;
    const float c = x[i] - last[i];
    last[i] = x[i];
    const float pi = (kappa * std::fabs(m[i]) - std::fabs(c)) / (std::fabs(u) + kEpsilon);
    // With this order of arguments a NaN remains a NaN, and servers refuse it.
    g[i] = std::min(std::max(pi, 0.0f), kMaxPi) * full_rate * g[i];
  }
}

void EnergyMatching::Reset() { std::fill(m_.begin(), m_.end(), 0.0f); }

void EnergyMatching::ListState(WorkerState* state) {
  state->vectors.push_back({"momentum", absl::MakeSpan(m_)});
  state->vectors.push_back({"last_weights", absl::MakeSpan(last_x_)});
}

}  // namespace catchment
