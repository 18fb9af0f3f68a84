#include "server/shard/momentum_log.h"

#include <cmath>

#include "absl/strings/str_format.h"

namespace catchment {
namespace {

constexpr float kWorthTelling = 0.05f;

constexpr double kWorthTellingOfRate = 0.2;

}  // namespace

std::optional<std::string> MomentumLog::BoundLine(const v1::MomentumState& state) {
  if (!state.has_rate_factor()) return std::nullopt;
  if (std::abs(state.rate_factor() - last_logged_factor_) <= kWorthTellingOfRate * last_logged_factor_)
    return std::nullopt;
  last_logged_factor_ = state.rate_factor();
  return absl::StrFormat("learning rate times %.3g: a mean staleness of %.1f versions bounds it",
                         state.rate_factor(), state.staleness_mean());
}

std::optional<std::string> MomentumLog::Line(const v1::MomentumState& state) {
  if (!state.has_momentum()) return BoundLine(state);
  if (last_logged_momentum_.has_value() &&
      std::abs(state.momentum() - *last_logged_momentum_) < kWorthTelling)
    return std::nullopt;
  last_logged_momentum_ = state.momentum();
  if (state.has_staleness_mean() && !state.has_exact_momentum()) {
    const double tau = state.staleness_mean();
    return absl::StrFormat(
        "momentum %.2f, learning rate times %.2f: a mean staleness of %.1f versions adds a momentum of "
        "%.2f, and %.2f are wanted together",
        state.momentum(), state.rate_factor(), tau, tau / (1 + tau), target_);
  }
  if (state.has_total_momentum()) {
    return absl::StrFormat("momentum %.2f: a total momentum of %.2f is measured, and %.2f is wanted",
                           state.momentum(), state.total_momentum(), target_);
  }
  return absl::StrFormat("momentum %.2f: nothing is measured yet, and %.2f is wanted", state.momentum(),
                         target_);
}

}  // namespace catchment
