#include "worker/algorithms/accrued_gradient.h"

#include <algorithm>

namespace catchment {

AccruedGradient::AccruedGradient(const v1::AccruedGradient& config, int64_t num_parameters,
                                 Parameters* parameters)
    : config_(config),
      parameters_(*parameters),
      x_(num_parameters),
      a_(num_parameters),
      g_(config.push_period() > 1 ? num_parameters : 0) {}

absl::Status AccruedGradient::Start(uint64_t version) {
  return parameters_.Pull(version, absl::MakeSpan(x_));
}

absl::Status AccruedGradient::Run(const Step& step, Gradient gradient) {
  Accrue(step, gradient);
  ++steps_;
  const bool push = steps_ % config_.push_period() == 0;
  const bool fetch = steps_ % config_.fetch_period() == 0;
  if (push) return Push(fetch);
  if (fetch) return parameters_.Pull(0, absl::MakeSpan(x_));
  return absl::OkStatus();
}

void AccruedGradient::Accrue(const Step& step, Gradient gradient) {
  if (samples_ == 0 && step.samples == 0) std::fill(a_.begin(), a_.end(), 0.0f);
  if (step.samples == 0) return;
  std::vector<float>& g = samples_ == 0 ? a_ : g_;
  gradient(x_, absl::MakeSpan(g));
  if (const float eta = config_.local_learning_rate(); eta > 0) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] -= eta * g[i];
  }
  if (samples_ > 0) {
    for (size_t i = 0; i < a_.size(); ++i) a_[i] += g_[i];
  }
  samples_ += step.samples;
}

absl::Status AccruedGradient::Push(bool fetch) {
  const uint32_t samples = samples_;
  samples_ = 0;
  const absl::StatusOr<Parameters::Outcome> outcome =
      fetch ? parameters_.PushPull(a_, samples, absl::MakeSpan(x_)) : parameters_.Push(a_, samples);
  if (!outcome.ok()) return outcome.status();
  Count(*outcome);
  return absl::OkStatus();
}

absl::Status AccruedGradient::Finish() {
  return steps_ % config_.push_period() == 0 ? absl::OkStatus() : Push(/*fetch=*/false);
}

}  // namespace catchment
