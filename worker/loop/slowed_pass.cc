#include "worker/loop/slowed_pass.h"

#include <cstdint>
#include <fstream>
#include <utility>

namespace catchment {

SlowedPass::SlowedPass(double factor, std::function<double()> computed, std::function<void(double)> pause,
                       PassObserver* observer)
    : factor_(factor),
      computed_(std::move(computed)),
      pause_(std::move(pause)),
      observer_(*observer),
      last_(computed_()) {}

void SlowedPass::BeforeForward(Range parameters) {
  End();
  observer_.BeforeForward(parameters);
  last_ = computed_();
}

void SlowedPass::AfterBackward(Range parameters) {
  End();
  observer_.AfterBackward(parameters);
  last_ = computed_();
}

void SlowedPass::End() {
  pause_((factor_ - 1) * (computed_() - last_));
  last_ = computed_();
}

double SecondsWithProcessor(const Clock& clock) {
  // Nanoseconds on a processor, nanoseconds of waiting for one, and the number of time slices.
  std::ifstream file("/proc/thread-self/schedstat");
  int64_t running = 0, waiting = 0;
  file >> running >> waiting;
  return clock.Now() - (file ? static_cast<double>(waiting) * 1e-9 : 0);
}

}  // namespace catchment
