#include "server/control/progress_meter.h"

#include <cmath>

namespace catchment {
namespace {

// The shortest time between two totals that are kept.
constexpr double kSpacing = 0.1;

double Difference(uint64_t before, uint64_t after) {
  return after > before ? static_cast<double>(after - before) : 0;
}

}  // namespace

void ProgressMeter::Restart(double now) {
  Totals totals;
  totals.time = now;
  history_.assign(1, totals);
}

void ProgressMeter::Add(const v1::Progress& before, const v1::Progress& after, double now) {
  if (history_.empty()) Restart(now);
  Totals totals = history_.back();
  totals.time = now;
  totals.samples += Difference(before.samples(), after.samples());
  totals.correct += Difference(before.correct(), after.correct());
  const double loss = after.loss_sum() - before.loss_sum();
  if (std::isfinite(loss)) {
    totals.loss_sum += loss;
    totals.loss_samples += Difference(before.samples(), after.samples());
  }
  const size_t size = history_.size();
  if (size > 2 && now - history_[size - 2].time < kSpacing) history_.pop_back();
  history_.push_back(totals);
  while (history_.size() > 2 && history_[1].time <= now - kWindow) history_.pop_front();
}

const ProgressMeter::Totals& ProgressMeter::Before(double now) const {
  for (auto at = history_.rbegin(); at != history_.rend(); ++at) {
    if (at->time <= now - kWindow) return *at;
  }
  return history_.front();
}

double ProgressMeter::samples_per_second(double now) const {
  if (history_.empty()) return 0;
  const Totals& before = Before(now);
  return now > before.time ? (history_.back().samples - before.samples) / (now - before.time) : 0;
}

double ProgressMeter::mean_loss() const {
  if (history_.empty()) return 0;
  const Totals& last = history_.back();
  const Totals& before = Before(last.time);
  const double samples = last.loss_samples - before.loss_samples;
  return samples > 0 ? (last.loss_sum - before.loss_sum) / samples : 0;
}

double ProgressMeter::accuracy() const {
  if (history_.empty()) return 0;
  const Totals& last = history_.back();
  const Totals& before = Before(last.time);
  return last.samples > before.samples ? (last.correct - before.correct) / (last.samples - before.samples)
                                       : 0;
}

}  // namespace catchment
