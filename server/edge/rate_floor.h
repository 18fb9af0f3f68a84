// The lowest rate at which a peer must go on with what it has begun.
//
// While one transfer is under way it must move `bytes_per_second` on average, over every 30 seconds, or over
// as long as two blocks take at that rate where that is longer. Bytes are counted block by block, so one
// block less is still enough.
#ifndef CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_
#define CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_

#include <cstdint>
#include <optional>

namespace catchment {

// Threads: not safe; its owner holds a lock.
class RateFloor {
 public:
  // bytes_per_second 0: there is no floor.
  RateFloor(double bytes_per_second, int64_t block_bytes);

  // To be called once a second or so. `transfer` names what is under way; 0: nothing is. `bytes`: moved so
  // far, over all transfers. Returns the rate, in bytes per second, where it is too low.
  std::optional<double> Check(double now, uint64_t transfer, uint64_t bytes);

 private:
  const double bytes_per_second_;
  const double block_bytes_;
  const double window_seconds_;
  uint64_t transfer_ = 0;
  // When the window began, and what had been moved by then.
  double begin_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_
