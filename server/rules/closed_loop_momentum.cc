#include "server/rules/closed_loop_momentum.h"

#include <algorithm>

#include "common/base/random.h"

namespace catchment {
namespace {

// Any value gives the same coordinates in every run.
constexpr uint64_t kSeed = 1;
// The share of a new reading in the reported average.
constexpr double kSmoothing = 0.02;

}  // namespace

ClosedLoopMomentum::ClosedLoopMomentum(float target, const v1::Compensation& compensation, int64_t size)
    : target_(target),
      config_(compensation.closed_loop_momentum()),
      step_bound_(compensation, target, StepBound::kAveraging),
      points_(kVersions),
      mu_(target) {
  Random random(kSeed);
  for (uint32_t i = 0; i < config_.coordinates(); ++i) {
    coordinates_.push_back(static_cast<int64_t>(random.Next() % static_cast<uint64_t>(size)));
  }
  for (Point& point : points_) point.x.resize(coordinates_.size());
  gradient_.resize(coordinates_.size());
  ratios_.reserve(coordinates_.size());
}

MomentumControl::Setting ClosedLoopMomentum::Set(const Stale& stale) {
  version_ = stale.version;
  for (size_t i = 0; i < coordinates_.size(); ++i) gradient_[i] = stale.gradient[coordinates_[i]];
  if (stale.tau > 0) Measure();
  step_bound_.Add(stale.tau);
  rate_factor_ = static_cast<float>(step_bound_.Limit(1));
  learning_rate_ = stale.learning_rate * rate_factor_;
  return {static_cast<float>(mu_), rate_factor_};
}

void ClosedLoopMomentum::Measure() {
  const uint64_t v = version_;
  if (v == 0) return;
  const Point& before = At(v - 1);
  const Point& at = At(v);
  const Point& after = At(v + 1);
  if (before.version != v - 1 || at.version != v || after.version != v + 1) return;
  ratios_.clear();
  for (size_t i = 0; i < coordinates_.size(); ++i) {
    const double moved = double{at.x[i]} - before.x[i];
    if (moved == 0) continue;
    ratios_.push_back((double{after.x[i]} - at.x[i] + double{at.learning_rate} * gradient_[i]) / moved);
  }
  if (ratios_.empty()) return;
  const auto middle = ratios_.begin() + static_cast<std::ptrdiff_t>(ratios_.size() / 2);
  std::nth_element(ratios_.begin(), middle, ratios_.end());
  const double total = *middle;
  measured_ = readings_++ == 0 ? total : measured_ + kSmoothing * (total - measured_);
  mu_ = std::clamp(mu_ + config_.gain() * (target_ - total), double{config_.min_momentum()}, target_);
}

void ClosedLoopMomentum::Stepped(uint64_t version, const float* weights) {
  // The learning rate of the step that has just been made.
  if (At(version - 1).version == version - 1) At(version - 1).learning_rate = learning_rate_;
  Point& point = At(version);
  point.version = version;
  for (size_t i = 0; i < coordinates_.size(); ++i) point.x[i] = weights[coordinates_[i]];
  if (version == version_ + 1) Measure();
}

v1::MomentumState ClosedLoopMomentum::state() const {
  v1::MomentumState state;
  step_bound_.Save(&state);
  state.set_momentum(static_cast<float>(mu_));
  state.set_rate_factor(rate_factor_);
  state.set_exact_momentum(mu_);
  if (readings_ > 0) state.set_total_momentum(measured_);
  return state;
}

void ClosedLoopMomentum::Restore(const v1::MomentumState& state) {
  step_bound_.Restore(state);
  if (state.has_rate_factor()) rate_factor_ = state.rate_factor();
  if (state.has_momentum()) mu_ = state.momentum();
  if (state.has_exact_momentum()) mu_ = state.exact_momentum();
  if (state.has_total_momentum()) {
    measured_ = state.total_momentum();
    readings_ = 1;
  }
}

void ClosedLoopMomentum::SavePoints(uint64_t from,
                                    google::protobuf::RepeatedPtrField<v1::MomentumPoint>* points) const {
  for (const Point& point : points_) {
    if (point.version < from || point.version == kNone) continue;
    v1::MomentumPoint& saved = *points->Add();
    saved.set_version(point.version);
    saved.set_learning_rate(point.learning_rate);
    saved.mutable_weights()->Assign(point.x.begin(), point.x.end());
  }
}

void ClosedLoopMomentum::RestorePoint(const v1::MomentumPoint& saved) {
  if (saved.weights_size() != std::ssize(coordinates_)) return;
  Point& point = At(saved.version());
  point.version = saved.version();
  point.learning_rate = saved.learning_rate();
  point.x.assign(saved.weights().begin(), saved.weights().end());
}

}  // namespace catchment
