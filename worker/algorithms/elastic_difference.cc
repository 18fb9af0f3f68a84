#include "worker/algorithms/elastic_difference.h"

#include <algorithm>
#include <utility>

#include "common/base/status_macros.h"
#include "common/job/learning_rate.h"
#include "glog/logging.h"

namespace catchment {

ElasticDifference::ElasticDifference(const v1::ElasticDifference& config, const v1::Optimizer& optimizer,
                                     RateFactors factors, int64_t num_parameters, Parameters* parameters,
                                     LocalWeights* kept)
    : config_(config),
      optimizer_(optimizer),
      factors_(std::move(factors)),
      delta_(optimizer.momentum()),
      parameters_(*parameters),
      kept_(kept),
      x_(kept == nullptr ? num_parameters : 0, parameters->memory()),
      g_(x_.size()),
      d_(x_.size()),
      v_(delta_ > 0 ? x_.size() : 0),
      ahead_(v_.size()) {}

absl::Status ElasticDifference::Start(uint64_t version) {
  RETURN_IF_ERROR(parameters_.Pull(version, kept_ != nullptr ? kept_->received() : absl::MakeSpan(x_)));
  if (kept_ != nullptr) kept_->Restart();
  return absl::OkStatus();
}

absl::Status ElasticDifference::Run(const Step& step, Gradient gradient) {
  delta_ = CycledMomentum(optimizer_, step.progress).value_or(optimizer_.momentum());
  const bool communicate = steps_ % config_.communication_period() == 0;
  if (communicate) {
    RETURN_IF_ERROR(StartExchange());
  }
  if (step.samples > 0) TakeGradient(gradient);
  if (communicate) {
    RETURN_IF_ERROR(FinishExchange());
  }
  if (step.samples > 0) {
    const auto rate = static_cast<float>(LearningRate(optimizer_, step.progress));
    factors_.ForEach({0, static_cast<int64_t>(x_.size())},
                     [&](Range part, float factor) { Move(part, factor * rate); });
  }
  samples_ += step.samples;
  ++steps_;
  return absl::OkStatus();
}

void ElasticDifference::TakeGradient(Gradient gradient) {
  NoPassObserver ignore_progress;
  if (kept_ != nullptr) return gradient({}, {}, &ignore_progress);
  if (v_.empty()) return gradient(x_, absl::MakeSpan(g_), &ignore_progress);
  for (size_t i = 0; i < x_.size(); ++i) ahead_[i] = x_[i] + delta_ * v_[i];
  gradient(ahead_, absl::MakeSpan(g_), &ignore_progress);
}

absl::Status ElasticDifference::StartExchange() {
  if (kept_ != nullptr) {
    RETURN_IF_ERROR(kept_->Write(0));
  }
  const absl::Span<const float> x = kept_ != nullptr ? kept_->sent() : absl::MakeSpan(x_);
  parameters_.Start({.kind = Parameters::Operation::kExchange,
                     .samples = static_cast<uint32_t>(samples_),
                     .input = x,
                     .output = kept_ != nullptr ? kept_->received() : absl::MakeSpan(d_),
                     .steps = steps_});
  parameters_.Ready({0, static_cast<int64_t>(x.size())});
  samples_ = 0;
  return absl::OkStatus();
}

absl::Status ElasticDifference::FinishExchange() {
  ASSIGN_OR_RETURN(const Parameters::Outcome outcome, parameters_.Finish());
  exchanged_steps_ = steps_;
  Count(outcome);
  if (outcome.non_finite && kept_ != nullptr) return Start(0);
  if (outcome.non_finite) {
    std::fill(v_.begin(), v_.end(), 0.0f);
    std::fill(g_.begin(), g_.end(), 0.0f);
    return parameters_.Pull(0, absl::MakeSpan(x_));
  }
  if (kept_ != nullptr) kept_->Use(0);
  for (size_t i = 0; i < x_.size(); ++i) x_[i] -= d_[i];
  return absl::OkStatus();
}

void ElasticDifference::Move(Range part, float eta) {
  if (v_.empty()) {
    for (int64_t i = part.begin; i < part.end; ++i) x_[i] -= eta * g_[i];
    return;
  }
  for (int64_t i = part.begin; i < part.end; ++i) {
    v_[i] = delta_ * v_[i] - eta * g_[i];
    x_[i] += v_[i];
  }
}

// In a job that is not synchronous, the steps since the last exchange are repeated after a resume.
void ElasticDifference::ListState(bool at_version, WorkerState* state) {
  CHECK(kept_ == nullptr) << "the state of a program's weights";
  state->vectors.push_back({"weights", absl::MakeSpan(x_)});
  if (!v_.empty()) state->vectors.push_back({"velocity", absl::MakeSpan(v_)});
  if (at_version) state->numbers.push_back({"samples", &samples_});
}

absl::Status ElasticDifference::Finish() {
  if (exchanged_steps_ == steps_) return absl::OkStatus();
  RETURN_IF_ERROR(StartExchange());
  return FinishExchange();
}

}  // namespace catchment
