#include "server/edge/rate_floor.h"

#include <algorithm>

namespace catchment {
namespace {

constexpr double kWindowSeconds = 30;

}  // namespace

RateFloor::RateFloor(double bytes_per_second, int64_t block_bytes)
    : bytes_per_second_(bytes_per_second),
      block_bytes_(static_cast<double>(block_bytes)),
      window_seconds_(bytes_per_second > 0 ? std::max(kWindowSeconds, 2 * block_bytes_ / bytes_per_second)
                                           : kWindowSeconds) {}

std::optional<double> RateFloor::Check(double now, uint64_t transfer, uint64_t bytes) {
  const bool same = transfer == transfer_;
  const double seconds = now - begin_;
  if (same && seconds < window_seconds_) return std::nullopt;
  const double moved = static_cast<double>(bytes - bytes_);
  transfer_ = transfer;
  begin_ = now;
  bytes_ = bytes;
  if (!same || transfer == 0 || moved + block_bytes_ >= bytes_per_second_ * seconds) return std::nullopt;
  return moved / seconds;
}

}  // namespace catchment
