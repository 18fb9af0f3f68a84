// Delivers SIGTERM, SIGINT and SIGHUP on a separate thread, which may call any function. SIGHUP stays ignored
// in a process that was started with it ignored (nohup).
#ifndef CATCHMENT_COMMON_SIGNALS_H_
#define CATCHMENT_COMMON_SIGNALS_H_

#include <functional>
#include <thread>

namespace catchment {

// Blocks the signals until a SignalThread waits for them. Call it first in main(), before any thread is
// started.
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
