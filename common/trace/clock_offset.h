// The offset of the master's clock to the own one, from the answers to calls, as in NTP (Mills 1991): the
// master's time is assumed to be that of the middle of the call, and is wrong by at most half of the round
// trip.
//
// Units: seconds. Threads: none.
#ifndef CATCHMENT_COMMON_TRACE_CLOCK_OFFSET_H_
#define CATCHMENT_COMMON_TRACE_CLOCK_OFFSET_H_

#include <cmath>
#include <optional>

namespace catchment {

class ClockOffset {
 public:
  struct Estimate {
    double seconds = 0;  // the master's clock minus the own one
    double error = 0;    // the most by which it may be wrong
  };

  // Adds a call that was sent and answered at these times of the own clock; `master` is the time in the
  // answer. The call with the shortest round trip counts. One that contradicts it begins anew: the clocks
  // have drifted, or the master was started again on another host.
  void Add(double sent, double master, double received) {
    const Estimate reading = {master - (sent + received) / 2, (received - sent) / 2};
    const bool contradicts =
        estimate_ && std::abs(reading.seconds - estimate_->seconds) > reading.error + estimate_->error;
    if (!estimate_ || contradicts || reading.error < estimate_->error) estimate_ = reading;
  }

  // Returns the estimate; nothing before the first call.
  std::optional<Estimate> estimate() const { return estimate_; }

 private:
  std::optional<Estimate> estimate_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_TRACE_CLOCK_OFFSET_H_
