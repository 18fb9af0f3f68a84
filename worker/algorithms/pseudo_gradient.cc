#include "worker/algorithms/pseudo_gradient.h"

#include "common/job/learning_rate.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {

PseudoGradient::PseudoGradient(const v1::PseudoGradient& config, int64_t num_parameters,
                               Parameters* parameters, std::optional<float> clip_norm)
    : config_(config),
      clip_norm_(clip_norm),
      optimizer_(MakeOptimizer(config.local_optimizer())),
      parameters_(*parameters),
      x_(num_parameters),
      pulled_(num_parameters),
      g_(num_parameters),
      states_(optimizer_->num_states(), std::vector<float>(num_parameters)) {}

absl::Status PseudoGradient::Start(uint64_t version) {
  absl::Status status = parameters_.Pull(version, absl::MakeSpan(pulled_));
  x_ = pulled_;
  return status;
}

absl::Status PseudoGradient::Run(const Step& step, Gradient gradient) {
  if (step.samples > 0) Move(step, gradient);
  samples_ += step.samples;
  ++steps_;
  ++total_steps_;
  const uint32_t wanted = step.local_steps > 0 ? step.local_steps : config_.local_steps();
  return steps_ >= wanted ? Exchange() : absl::OkStatus();
}

void PseudoGradient::Move(const Step& step, Gradient gradient) {
  NoPassObserver ignore_progress;
  gradient(x_, absl::MakeSpan(g_), &ignore_progress);
  const v1::Optimizer& local = config_.local_optimizer();
  if (local.has_clip_norm()) ClipNorm(local.clip_norm(), absl::MakeSpan(g_));
  Optimizer::Part all{static_cast<int64_t>(x_.size()), g_.data(), x_.data()};
  for (size_t s = 0; s < states_.size(); ++s) all.states[s] = states_[s].data();
  optimizer_->Apply({static_cast<float>(LearningRate(local, step.progress)), ++moves_,
                     CycledMomentum(local, step.progress)},
                    all);
}

absl::Status PseudoGradient::Exchange() {
  for (size_t i = 0; i < x_.size(); ++i) g_[i] = pulled_[i] - x_[i];
  if (clip_norm_) ClipNorm(*clip_norm_, absl::MakeSpan(g_));
  const absl::StatusOr<Parameters::Outcome> outcome =
      parameters_.PushPull(g_, samples_, absl::MakeSpan(pulled_), total_steps_);
  steps_ = 0;
  samples_ = 0;
  if (!outcome.ok()) return outcome.status();
  Count(*outcome);
  if (outcome->non_finite) ForgetOptimizer();
  x_ = pulled_;
  return absl::OkStatus();
}

void PseudoGradient::ForgetOptimizer() {
  for (std::vector<float>& state : states_) state.assign(state.size(), 0.0f);
  moves_ = 0;
}

// In a job that is not synchronous, the steps since the last push are repeated after a resume, from the
// center's weights.
void PseudoGradient::ListState(bool at_version, WorkerState* state) {
  const std::vector<std::string> names = optimizer_->state_names();
  for (size_t s = 0; s < states_.size(); ++s) {
    state->vectors.push_back({"optimizer." + names[s], absl::MakeSpan(states_[s])});
  }
  if (!states_.empty()) state->numbers.push_back({"optimizer_steps", &moves_});
}

absl::Status PseudoGradient::Finish() { return steps_ == 0 ? absl::OkStatus() : Exchange(); }

}  // namespace catchment
