#include <algorithm>
#include <cmath>

#include "server/control/lease_ledger.h"

namespace catchment {
namespace {

constexpr double kLeaseSeconds = 1;
// The limit for all workers together.
constexpr double kMaxLeasesPerSecond = 100;

}  // namespace

uint64_t LeaseSize(const v1::Progress& progress, int workers) {
  const double worked = progress.compute_seconds() + progress.push_seconds() + progress.pull_seconds() +
                        progress.data_seconds();
  if (progress.steps() == 0 || worked <= 0) return kMinibatchesPerLease;
  const double seconds = std::max(kLeaseSeconds, workers / kMaxLeasesPerSecond);
  const double steps = seconds * static_cast<double>(progress.steps()) / worked;
  return std::clamp(static_cast<uint64_t>(std::min(steps, static_cast<double>(kMaxPerLease))),
                    kMinibatchesPerLease, kMaxPerLease);
}

double StepsPerSecond(const v1::Progress& progress) {
  const double seconds = progress.compute_seconds() + progress.data_seconds();
  return seconds > 0 ? static_cast<double>(progress.steps()) / seconds : 0;
}

uint32_t LocalSteps(uint32_t most, double speed, double fastest) {
  if (speed <= 0 || fastest <= 0) return most;
  return std::max(1u, static_cast<uint32_t>(std::lround(most * std::min(1.0, speed / fastest))));
}

}  // namespace catchment
