#include "worker/algorithms/elastic_difference.h"

#include <algorithm>

#include "common/base/status_macros.h"
#include "common/job/learning_rate.h"

namespace catchment {

ElasticDifference::ElasticDifference(const v1::ElasticDifference& config, const v1::Optimizer& optimizer,
                                     int64_t num_parameters, Parameters* parameters)
    : config_(config),
      optimizer_(optimizer),
      delta_(optimizer.momentum()),
      parameters_(*parameters),
      x_(num_parameters, parameters->memory()),
      g_(num_parameters),
      d_(num_parameters),
      v_(delta_ > 0 ? num_parameters : 0),
      ahead_(v_.size()) {}

absl::Status ElasticDifference::Start(uint64_t version) {
  return parameters_.Pull(version, absl::MakeSpan(x_));
}

absl::Status ElasticDifference::Run(const Step& step, Gradient gradient) {
  delta_ = CycledMomentum(optimizer_, step.progress).value_or(optimizer_.momentum());
  const bool communicate = steps_ % config_.communication_period() == 0;
  if (communicate) StartExchange();
  if (step.samples > 0) TakeGradient(gradient);
  if (communicate) {
    RETURN_IF_ERROR(FinishExchange());
  }
  if (step.samples > 0) Move(static_cast<float>(LearningRate(optimizer_, step.progress)));
  samples_ += step.samples;
  ++steps_;
  return absl::OkStatus();
}

void ElasticDifference::TakeGradient(Gradient gradient) {
  NoPassObserver ignore_progress;
  if (v_.empty()) return gradient(x_, absl::MakeSpan(g_), &ignore_progress);
  for (size_t i = 0; i < x_.size(); ++i) ahead_[i] = x_[i] + delta_ * v_[i];
  gradient(ahead_, absl::MakeSpan(g_), &ignore_progress);
}

void ElasticDifference::StartExchange() {
  parameters_.Start({.kind = Parameters::Operation::kExchange,
                     .samples = static_cast<uint32_t>(samples_),
                     .input = x_,
                     .output = absl::MakeSpan(d_),
                     .steps = steps_});
  parameters_.Ready({0, static_cast<int64_t>(x_.size())});
  samples_ = 0;
}

absl::Status ElasticDifference::FinishExchange() {
  ASSIGN_OR_RETURN(const Parameters::Outcome outcome, parameters_.Finish());
  exchanged_steps_ = steps_;
  Count(outcome);
  if (outcome.non_finite) {
    std::fill(v_.begin(), v_.end(), 0.0f);
    std::fill(g_.begin(), g_.end(), 0.0f);
    return parameters_.Pull(0, absl::MakeSpan(x_));
  }
  for (size_t i = 0; i < x_.size(); ++i) x_[i] -= d_[i];
  return absl::OkStatus();
}

void ElasticDifference::Move(float eta) {
  if (v_.empty()) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] -= eta * g_[i];
    return;
  }
  for (size_t i = 0; i < x_.size(); ++i) {
    v_[i] = delta_ * v_[i] - eta * g_[i];
    x_[i] += v_[i];
  }
}

// In a job that is not synchronous, the steps since the last exchange are repeated after a resume.
void ElasticDifference::ListState(bool at_version, WorkerState* state) {
  state->vectors.push_back({"weights", absl::MakeSpan(x_)});
  if (!v_.empty()) state->vectors.push_back({"velocity", absl::MakeSpan(v_)});
  if (at_version) state->numbers.push_back({"samples", &samples_});
}

absl::Status ElasticDifference::Finish() {
  if (exchanged_steps_ == steps_) return absl::OkStatus();
  StartExchange();
  return FinishExchange();
}

}  // namespace catchment
