// The signals that ask a process to end.
#ifndef CATCHMENT_COMMON_PROGRAM_ENDING_SIGNALS_H_
#define CATCHMENT_COMMON_PROGRAM_ENDING_SIGNALS_H_

#include <signal.h>

namespace catchment {

// Returns true for SIGUSR1 and SIGUSR2. They end a command, which watches over a whole job. A daemon goes on
// until SIGTERM, because a batch system warns all processes of a job at once.
inline bool IsPlainWarning(int signal) { return signal == SIGUSR1 || signal == SIGUSR2; }

// Returns true for a signal with which batch systems warn of a limit before they end a job: SIGUSR1 and
// SIGUSR2 (--signal of Slurm, -notify of Grid Engine, the run limit of LSF), and SIGXCPU, which the kernel
// repeats every second after the limit.
inline bool IsWarning(int signal) { return IsPlainWarning(signal) || signal == SIGXCPU; }

// Returns the set of SIGTERM, SIGINT, SIGHUP and the warnings, without those that this process ignores:
// SIGHUP under nohup, or a warning after `trap '' USR1` in a script. Linux queues a blocked signal even if it
// is ignored, so a process must not wait for one.
inline sigset_t EndingSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  sigaddset(&signals, SIGINT);
  for (const int signal : {SIGHUP, SIGUSR1, SIGUSR2, SIGXCPU}) {
    struct sigaction action;
    const bool ignored = sigaction(signal, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
    if (!ignored) sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace catchment

#endif  // CATCHMENT_COMMON_PROGRAM_ENDING_SIGNALS_H_
