#include <algorithm>

#include "server/master/lease_ledger.h"

namespace catchment {
namespace {

constexpr double kLeaseSeconds = 1;
// The limit for all workers together.
constexpr double kMostLeasesPerSecond = 100;

}  // namespace

uint64_t LeaseSize(const v1::Progress& progress, int workers) {
  const double worked = progress.compute_seconds() + progress.push_seconds() + progress.pull_seconds() +
                        progress.data_seconds();
  if (progress.steps() == 0 || worked <= 0) return kMinibatchesPerLease;
  const double seconds = std::max(kLeaseSeconds, workers / kMostLeasesPerSecond);
  const double steps = seconds * static_cast<double>(progress.steps()) / worked;
  return std::clamp(static_cast<uint64_t>(std::min(steps, static_cast<double>(kMostPerLease))),
                    kMinibatchesPerLease, kMostPerLease);
}

}  // namespace catchment
