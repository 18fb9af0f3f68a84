#include "worker/algorithms/accrued_gradient.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "worker/algorithms/gradient_transform.h"

namespace catchment {
namespace {

// Returns true if a contribution is of several gradients.
bool Several(const v1::AccruedGradient& config) { return config.push_period() > 1; }

}  // namespace

AccruedGradient::AccruedGradient(const v1::AccruedGradient& config, RateFactors factors,
                                 int64_t num_parameters, Parameters* parameters, const ModelMemory& memory,
                                 std::optional<float> clip_norm, std::unique_ptr<GradientTransform> transform)
    : config_(config),
      factors_(std::move(factors)),
      clip_norm_(clip_norm),
      transform_(std::move(transform)),
      parameters_(*parameters),
      own_x_(memory.weights.empty() ? num_parameters : 0),
      own_a_(Several(config) || memory.gradient.empty() ? num_parameters : 0, parameters->memory()),
      own_g_(Several(config) && memory.gradient.empty() ? num_parameters : 0),
      x_(memory.weights.empty() ? absl::MakeSpan(own_x_) : memory.weights),
      a_(own_a_.empty() ? memory.gradient : absl::MakeSpan(own_a_)),
      g_(own_g_.empty() ? memory.gradient : absl::MakeSpan(own_g_)) {}

absl::Status AccruedGradient::Start(uint64_t version) {
  absl::Status status = parameters_.Pull(version, x_);
  if (transform_ != nullptr) transform_->Start(x_);
  return status;
}

absl::Status AccruedGradient::Run(const Step& step, Gradient gradient) {
  ++steps_;
  push_ = ++since_push_ == config_.push_period();
  fetch_ = ++since_fetch_ == config_.fetch_period();
  if (push_) since_push_ = 0;
  if (fetch_) since_fetch_ = 0;
  first_ = samples_ == 0;
  samples_ += step.samples;
  if (step.samples > 0) share_ = static_cast<float>(step.samples) / static_cast<float>(samples_);
  status_ = absl::OkStatus();
  if (step.samples > 0) {
    if (transform_ != nullptr) transform_->Begin(step.progress);
    gradient(x_, first_ ? a_ : g_, this);
  } else {
    status_ = Settle();
    if (first_) std::fill(a_.begin(), a_.end(), 0.0f);
    if (push_ && status_.ok()) {
      Clip();
      StartPush();
      parameters_.Ready(All());
    }
  }
  if (fetch_ && !push_ && status_.ok()) Begin({.kind = Parameters::Operation::kPull, .output = x_});
  if (push_) {
    samples_ = 0;
    pushed_steps_ = steps_;
  }
  return status_;
}

void AccruedGradient::BeforeForward(Range layer) {
  const bool last = layer.end == All().end;
  if (status_.ok()) status_ = Await(layer);
  // The backward pass that follows writes to memory from which the last push may still be sending.
  if (status_.ok() && last) status_ = Settle();
  if (status_.ok() && last && push_) StartPush();
}

void AccruedGradient::AfterBackward(Range layer) {
  const absl::Span<const float> g = first_ ? a_ : g_;
  if (config_.local_learning_rate() > 0) {
    factors_.ForEach(layer, [&](Range part, float factor) {
      const float eta = factor * config_.local_learning_rate();
      for (int64_t i = part.begin; i < part.end; ++i) x_[i] -= eta * g[i];
    });
  }
  if (!first_) Accrue(layer);
  if (!push_ || !status_.ok()) return;
  if (clip_norm_) {
    if (layer.begin > 0) return;
    Clip();
    layer = All();
  }
  if (transform_ != nullptr) transform_->Apply(layer, x_, a_);
  parameters_.Ready(layer);
}

void AccruedGradient::Accrue(Range layer) {
  if (config_.mean()) {
    for (int64_t i = layer.begin; i < layer.end; ++i) a_[i] += share_ * (g_[i] - a_[i]);
  } else {
    for (int64_t i = layer.begin; i < layer.end; ++i) a_[i] += g_[i];
  }
}

void AccruedGradient::Clip() {
  if (clip_norm_) ClipNorm(*clip_norm_, a_);
}

// Starts the push of the contribution in a_, all of which is ready.
void AccruedGradient::StartPush() {
  using Operation = Parameters::Operation;
  Begin({.kind = fetch_ ? Operation::kPushPull : Operation::kPush,
         .samples = samples_,
         .input = a_,
         .output = fetch_ ? x_ : absl::Span<float>(),
         .steps = steps_});
}

void AccruedGradient::Begin(const Parameters::Operation& operation) {
  parameters_.Start(operation);
  in_flight_ = true;
}

absl::Status AccruedGradient::Await(Range layer) {
  if (!in_flight_) return absl::OkStatus();
  absl::Status status = parameters_.Await(layer);
  in_flight_ = status.ok();
  return status;
}

absl::Status AccruedGradient::Settle() {
  if (!in_flight_) return absl::OkStatus();
  in_flight_ = false;
  ASSIGN_OR_RETURN(const Parameters::Outcome outcome, parameters_.Finish());
  Count(outcome);
  if (outcome.non_finite && transform_ != nullptr) transform_->Reset();
  return absl::OkStatus();
}

void AccruedGradient::ListState(bool at_version, WorkerState* state) {
  if (transform_ != nullptr) transform_->ListState(state);
  if (config_.fetch_period() == 1) return;  // the next step begins with the center's weights
  state->vectors.push_back({"weights", x_});
  state->numbers.push_back({"steps_since_fetch", &since_fetch_});
}

absl::Status AccruedGradient::Finish() {
  RETURN_IF_ERROR(Settle());
  if (pushed_steps_ == steps_) return absl::OkStatus();
  Clip();
  const absl::StatusOr<Parameters::Outcome> outcome = parameters_.Push(a_, samples_, steps_);
  samples_ = 0;
  pushed_steps_ = steps_;
  RETURN_IF_ERROR(outcome.status());
  Count(*outcome);
  return absl::OkStatus();
}

}  // namespace catchment
