// The messages of gRPC in the log of a daemon. gRPC writes a line for each handshake that fails, so that a stranger could
// fill the disk with them.
#ifndef CATCHMENT_COMMON_GRPC_LOG_H_
#define CATCHMENT_COMMON_GRPC_LOG_H_

#include <cstdint>

namespace catchment {

// Counts lines: so many at once, and then so many a second.
//
// Threads: none.
class LineRate {
 public:
  LineRate(double burst, double per_second) : burst_(burst), per_second_(per_second), lines_(burst) {}

  // Returns true if a line may be written at this time, in seconds. `left_out` is then the number of lines that were not
  // since the last one that was.
  bool Admit(double now, uint64_t* left_out);

 private:
  const double burst_, per_second_;
  double lines_, at_ = 0;
  uint64_t left_out_ = 0;
};

// Writes gRPC's messages to glog from then on, a few a second, and the number of those that are left out. A line has at
// most some hundred bytes, without control characters. Call it once, after glog is initialized.
void LimitGrpcLog();

}  // namespace catchment

#endif  // CATCHMENT_COMMON_GRPC_LOG_H_
