// Functions that read the values of measures, for several tables. `get` is a member of what their names say.
//
// Threads: pure functions.
#ifndef CATCHMENT_COMMON_MEASURES_MEASURE_READERS_H_
#define CATCHMENT_COMMON_MEASURES_MEASURE_READERS_H_

#include <functional>
#include <nlohmann/json.hpp>
#include <optional>

#include "proto/wire.pb.h"

namespace catchment {

template <typename T>
nlohmann::ordered_json Known(const T& value) {
  return value;
}
template <typename T>
nlohmann::ordered_json Known(const std::optional<T>& value) {
  return value ? nlohmann::ordered_json(*value) : nlohmann::ordered_json();
}

// These read the pushes of a job, or of a part of it.
template <auto get, typename Reading>
nlohmann::ordered_json OfPushes(const Reading& reading) {
  return Known(std::invoke(get, reading.pushes));
}
template <int percent, typename Reading>
nlohmann::ordered_json Staleness(const Reading& reading) {
  return reading.pushes.staleness.quantile(percent / 100.0);
}
template <int percent, typename Reading>
nlohmann::ordered_json StalenessSeconds(const Reading& reading) {
  return Known(reading.pushes.SecondsQuantile(percent / 100.0));
}
// Reads a share of the time of a job, or of a worker.
template <auto part, typename Reading>
nlohmann::ordered_json Share(const Reading& reading) {
  return Known(reading.work.share(reading.work.*part));
}

// Returns the momentum that the shard has set.
nlohmann::ordered_json Momentum(const v1::ShardReport& shard);
// Returns the momentum that asynchrony adds. In the open loop this is the prediction of the model from the
// measured staleness; in the closed loop it is the measured total momentum minus the momentum that was set.
nlohmann::ordered_json ImplicitMomentum(const v1::ShardReport& shard);

}  // namespace catchment

#endif  // CATCHMENT_COMMON_MEASURES_MEASURE_READERS_H_
