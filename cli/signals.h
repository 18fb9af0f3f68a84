// The command's signals, taken where it waits instead of in a handler: SIGINT, SIGTERM and SIGHUP (end), and
// SIGCHLD (a child ended).
#ifndef CATCHMENT_CLI_SIGNALS_H_
#define CATCHMENT_CLI_SIGNALS_H_

#include <signal.h>

namespace catchment {

// From its making to its end these signals are blocked in the calling thread and in all that are started
// meanwhile. Make it before the first thread.
class SignalWaiter {
 public:
  SignalWaiter();
  ~SignalWaiter();
  SignalWaiter(const SignalWaiter&) = delete;
  SignalWaiter& operator=(const SignalWaiter&) = delete;

  // The next signal, or 0 after `seconds` without one.
  int Wait(double seconds);

 private:
  sigset_t awaited_;
  sigset_t before_;
};

}  // namespace catchment

#endif  // CATCHMENT_CLI_SIGNALS_H_
