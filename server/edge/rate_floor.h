// The lowest rate of a peer's transfers.
//
// A transfer in progress must move `bytes_per_second` on average over every 30 seconds, or over the time of
// two blocks at that rate if that is longer. Bytes are counted block by block, so one block less is accepted.
#ifndef CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_
#define CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_

#include <cstdint>
#include <optional>

namespace catchment {

// Threads: not safe; its owner holds a lock.
class RateFloor {
 public:
  // With bytes_per_second 0 there is no limit.
  RateFloor(double bytes_per_second, int64_t block_bytes);

  // Returns the rate in bytes per second if it is too low. To be called about once a second. `transfer`
  // identifies the transfer in progress; 0: none. `bytes` have been moved so far in all transfers.
  std::optional<double> Check(double now, uint64_t transfer, uint64_t bytes);

 private:
  const double bytes_per_second_;
  const double block_bytes_;
  const double window_seconds_;
  uint64_t transfer_ = 0;
  // The beginning of the window, and the bytes moved until then.
  double begin_ = 0;
  uint64_t bytes_ = 0;
};

}  // namespace catchment

#endif  // CATCHMENT_SERVER_EDGE_RATE_FLOOR_H_
