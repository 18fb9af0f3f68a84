// Delivers SIGTERM, SIGINT and SIGHUP on a thread of their own, where any function may be called. SIGHUP is
// left out in a process that was started with it ignored (nohup).
#ifndef CATCHMENT_COMMON_SIGNALS_H_
#define CATCHMENT_COMMON_SIGNALS_H_

#include <functional>
#include <thread>

namespace catchment {

// First thing in main(), before any thread: the signals wait for a SignalThread.
void BlockSignals();

// Calls `on_signal` for every SIGTERM, SIGINT and SIGHUP, from construction to destruction.
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
