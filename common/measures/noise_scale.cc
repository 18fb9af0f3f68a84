#include "common/measures/noise_scale.h"

#include <algorithm>

namespace catchment {

std::optional<v1::GradientNoise> TotalNoise(const v1::JobStatus& status) {
  if (status.shards().empty() || status.shards_size() < status.servers_size()) return std::nullopt;
  v1::GradientNoise total;
  total.set_updates(UINT64_MAX);
  for (const v1::ShardReport& shard : status.shards()) {
    if (!shard.has_noise()) return std::nullopt;
    total.set_updates(std::min(total.updates(), shard.noise().updates()));
    total.set_trace(total.trace() + shard.noise().trace());
    total.set_squared_gradient(total.squared_gradient() + shard.noise().squared_gradient());
  }
  return total;
}

std::optional<double> NoiseScale(const v1::GradientNoise& noise) {
  if (noise.updates() < kMinNoiseUpdates || noise.squared_gradient() <= 0) return std::nullopt;
  return std::max(0.0, noise.trace()) / noise.squared_gradient();
}

}  // namespace catchment
