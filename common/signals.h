// SIGTERM and SIGINT on a thread of their own, where anything may be done.
#ifndef CATCHMENT_COMMON_SIGNALS_H_
#define CATCHMENT_COMMON_SIGNALS_H_

#include <functional>
#include <thread>

namespace catchment {

// First thing in main(), before any thread: the signals wait for a SignalThread.
void BlockSignals();

// Calls `on_signal` for every SIGTERM and SIGINT, from construction to destruction.
class SignalThread {
 public:
  explicit SignalThread(std::function<void(int signal)> on_signal);
  ~SignalThread();

 private:
  const std::function<void(int)> on_signal_;
  std::thread thread_;
};

}  // namespace catchment

#endif  // CATCHMENT_COMMON_SIGNALS_H_
