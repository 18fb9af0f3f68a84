#include <algorithm>

#include "cli/process.h"

namespace catchment {

SignalWaiter::SignalWaiter() {
  sigemptyset(&awaited_);
  for (int signal : {SIGINT, SIGTERM, SIGHUP, SIGCHLD}) sigaddset(&awaited_, signal);
  pthread_sigmask(SIG_BLOCK, &awaited_, &before_);
}

SignalWaiter::~SignalWaiter() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

int SignalWaiter::Wait(double seconds) {
  seconds = std::max(seconds, 0.0);
  const timespec timeout = {static_cast<time_t>(seconds),
                            static_cast<long>((seconds - static_cast<time_t>(seconds)) * 1e9)};
  const int signal = sigtimedwait(&awaited_, nullptr, &timeout);
  return std::max(signal, 0);  // nothing came, or an interruption: the caller looks around and comes again
}

}  // namespace catchment
